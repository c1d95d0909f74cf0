"""SphereFed: unit features before a frame that never moves; on request calibrated after the last training round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import Array, Arrays, Pass, cross_entropy, unit
from .oracles import Oracle, Setting, Upload, below

FITTED = {"frame.calibrated", "frame.fitted"}


class SphereFed(Oracle):
    """`frame.rows` is what was drawn with the first model."""

    opaque = ("frame",)
    defaults: Mapping[str, Setting] = {"loss": "mse", "scale": 10.0, "calibrate": 0, "gamma": 1e-3}

    def calibrating(self, t: int) -> bool:
        """Whether round t is the one in which nobody trains."""
        return bool(self.settings["calibrate"]) and t == int(self.number("rounds"))

    def shares(self, t: int) -> set[str]:
        return self.travelling("encoder") | (FITTED if self.calibrating(t) else set())

    def first_shared(self) -> Arrays:
        return {name: self.init[name] for name in self.travelling("encoder") | (FITTED & set(self.init))}

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        w, data = self.receive(site, t), self.data[site]
        if self.calibrating(t):
            z = unit(Pass(w, training=False).chain(self.encoder, data.x)[0])[0]
            up = w | moments(z, data.y, len(w["frame.rows"]))
        else:
            trained = below(w, "encoder")
            self.walk(w, trained, lambda x, y: self.slopes(w, x, y)[1], site=site, t=t)
            up = w
        self.keep(site, t, w)
        return Upload(self.weight(site), up), self.scores(w, data.test_x)

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        """The mean of the encoders; at the very end the solution of the sites' sums."""
        if not self.calibrating(t):
            super().close(t, uploads)
        elif uploads:
            gram, cross = (sum(upload.w[name] for upload in uploads.values()) for name in ("gram", "cross"))
            solved = solve(gram, cross, self.number("gamma"))
            flag = np.ones_like(self.init["frame.fitted"])
            self.shared = self.shared | {"frame.calibrated": solved, "frame.fitted": flag}

    def state(self) -> Arrays:
        """The encoder; how the solution is kept until sites get it is free."""
        return {name: value for name, value in self.shared.items() if name not in FITTED}

    def slopes(self, w: Arrays, x: Array, y: Array) -> tuple[float, Arrays]:
        """The mean square between o and one_hot(y), or the cross entropy of s·o."""
        run = Pass(w, training=True)
        z, back = run.chain(self.encoder, x)
        if self.settings["loss"] == "ce":
            loss, slope = entropy(z, w["frame.rows"], y, self.number("scale"))
        else:
            loss, slope = squares(z, w["frame.rows"], y)
        back(slope)
        return loss, run.grads

    def scores(self, w: Arrays, x: Array) -> Array:
        z = unit(Pass(w, training=False).chain(self.encoder, x)[0])[0]
        fitted = self.settings["calibrate"] and bool(w["frame.fitted"])
        return z @ (w["frame.calibrated"] if fitted else w["frame.rows"]).T


def squares(z: Array, rows: Array, y: Array) -> tuple[float, Array]:
    """MSE over B×C of cosines against one_hot(y), and the gradient for z."""
    v, back = unit(z)
    apart = v @ rows.T - np.eye(len(rows))[y]
    return float((apart**2).mean()), back(2.0 * apart / apart.size @ rows)


def entropy(z: Array, rows: Array, y: Array, scale: float) -> tuple[float, Array]:
    """CE(s·cosines, y), and the gradient for z."""
    v, back = unit(z)
    loss, slope = cross_entropy(scale * (v @ rows.T), y)
    return loss, back(scale * slope @ rows)


def moments(v: Array, y: Array, classes: int) -> Arrays:
    """A = Σ z̄ z̄ᵀ and b = Σ z̄ one_hot(y)ᵀ."""
    return {"gram": v.T @ v, "cross": v.T @ np.eye(classes)[y]}


def solve(gram: Array, cross: Array, gamma: float) -> Array:
    """W_cal, with W_calᵀ = (A + γI)⁻¹ b."""
    return np.linalg.solve(gram + gamma * np.eye(len(gram)), cross).T
