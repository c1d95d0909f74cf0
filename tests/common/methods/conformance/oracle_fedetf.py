"""FedETF: unit projections before a simplex that never moves, unless each site fits it at the end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import Array, Arrays, Backward, Pass, balanced, unit
from .oracles import Oracle, Setting, Upload, below

CYCLES, STAGE_EPOCHS, FRAME_RATE, PROJECTION_RATE = 20, 3, 0.1, 0.05
VECTORS = "etf.vectors"


class FedEtf(Oracle):
    """`etf.vectors` is what was drawn with the first model."""

    defaults: Mapping[str, Setting] = {"absent": "exclude", "etf_finetune": 0}

    def trained(self, w: Arrays) -> set[str]:
        """What learns: encoder, projection and s."""
        return below(w, "encoder", "projection") | {"scale"}

    def shares(self, t: int) -> set[str]:
        return self.travelling("encoder", "projection") | {"scale"}

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        w = self.receive(site, t)
        self.update(w, site, t)
        self.keep(site, t, w)
        return Upload(self.weight(site), w), self.scores(w, self.data[site].test_x)

    def update(self, w: Arrays, site: str, t: int) -> None:
        """E epochs on the balanced loss."""
        counts = self.counts(self.data[site].y)
        self.walk(w, self.trained(w), lambda x, y: self.slopes(w, counts, x, y)[1], site=site, t=t)

    def counts(self, y: Array) -> Array:
        """Samples of each class; an absent one counts as none or, if asked, as one."""
        counts = np.bincount(y, minlength=self.init[VECTORS].shape[1])
        return np.maximum(counts, 1) if self.settings["absent"] == "one" else counts

    def serve(self, site: str, t: int) -> Arrays:
        """After the last round: one more update, then frame and projection by turns."""
        w = super().serve(site, t)
        if self.settings["etf_finetune"]:
            self.update(w, site, t)
            for _ in range(CYCLES):
                self.stage(w, {VECTORS}, site, t, lr=FRAME_RATE, momentum=0.0, decay=0.0)
                self.stage(w, below(w, "projection"), site, t, lr=PROJECTION_RATE)
        return w

    def stage(self, w: Arrays, names: set[str], site: str, t: int, **rates: float) -> None:
        """Three epochs of plain cross entropy on some of the tensors."""
        plain = np.ones(w[VECTORS].shape[1])

        def slopes(x: Array, y: Array) -> Arrays:
            return self.slopes(w, plain, x, y)[1]

        self.walk(w, names, slopes, site=site, t=t, epochs=STAGE_EPOCHS, **rates)

    def slopes(self, w: Arrays, counts: Array, x: Array, y: Array) -> tuple[float, Arrays]:
        """CE(s·Vᵀμ + log n, y) and its gradients, those of V included."""
        run = Pass(w, training=True)
        h, back_encoder = run.chain(self.encoder, x)
        p, back_projection = self.project(run, h)
        loss, dp, d_scale, d_vectors = simplex_loss(p, w[VECTORS], w["scale"], y, counts)
        run.grads |= {"scale": d_scale, VECTORS: d_vectors}
        back_encoder(back_projection(dp))
        return loss, run.grads

    def project(self, run: Pass, h: Array) -> tuple[Array, Backward]:
        """The projection layer, where there is one."""
        return run.linear("projection", h) if "projection.weight" in run.w else (h, lambda d: d)

    def scores(self, w: Arrays, x: Array) -> Array:
        run = Pass(w, training=False)
        p = self.project(run, run.chain(self.encoder, x)[0])[0]
        return unit(p)[0] @ w[VECTORS]


def simplex(basis: Array) -> Array:
    """V = √(C/(C−1)) · P (I − 11ᵀ/C) from C orthonormal columns."""
    classes = basis.shape[1]
    centred = np.eye(classes) - np.ones((classes, classes)) / classes
    return np.sqrt(classes / (classes - 1)) * basis @ centred


def simplex_loss(
    p: Array, vectors: Array, scale: Array | float, y: Array, counts: Array
) -> tuple[float, Array, Array, Array]:
    """The balanced loss; gradients for p, s and V."""
    direction, back = unit(p)
    cosines = direction @ vectors
    loss, slope = balanced(scale * cosines, y, counts)
    return loss, back(scale * slope @ vectors.T), (slope * cosines).sum(), scale * direction.T @ slope
