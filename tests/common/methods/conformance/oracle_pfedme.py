"""pFedMe: an inner model near the shared one is trained, and the shared one follows it."""

from __future__ import annotations

from collections.abc import Mapping

from .network import Array, Arrays
from .oracle_models import MODEL, Whole, filled, logits, memory, under, within
from .oracles import Setting, SiteArrays, Upload, average, below


class PFedMe(Whole):
    """The inner model is `theta`; only it sees samples, so the shared one takes over its statistics."""

    defaults: Mapping[str, Setting] = {
        "bn_policy": "local_stats",
        "K_in": 5,
        "lambda": 15.0,
        "beta": 1.0,
        "eta_p": 0.01,
        "mu": 0.001,
        "eval_model": "theta",
    }

    def receive(self, site: str, t: int) -> Arrays:
        w = super().receive(site, t)
        return w if site in self.since else w | within(self.taken(w), "theta")

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        theta = under(w, "theta") | self.taken(w)
        for part in self.parts(data, self.epochs):
            self.batch(w, theta, part)
        w |= memory(theta) | within(theta, "theta")

    def batch(self, w: Arrays, theta: Arrays, data: SiteArrays) -> None:
        """K_in steps of θ, then one of w."""
        strength, rate = self.number("lambda"), self.number("eta_p")
        for _ in range(int(self.number("K_in"))):
            slopes = self.classify(theta, data)
            theta |= inner(theta, w, slopes, rate=rate, strength=strength, decay=self.number("mu"))
        w |= outer(w, {name: theta[name] for name in below(w, *MODEL)}, self.number("lr") * strength)

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        if uploads:
            beta, mean = self.number("beta"), average(list(uploads.values()), self.shares(t))
            self.shared = {name: (1 - beta) * self.shared[name] + beta * mean[name] for name in mean}

    def fill_statistics(self, w: Arrays, x: Array) -> None:
        if self.settings["eval_model"] == "theta":
            w |= within(filled(under(w, "theta"), x), "theta")
        else:
            super().fill_statistics(w, x)

    def scores(self, w: Arrays, x: Array) -> Array:
        return logits(under(w, "theta") if self.settings["eval_model"] == "theta" else w, x)


def inner(theta: Arrays, w: Arrays, slopes: Arrays, *, rate: float, strength: float, decay: float) -> Arrays:
    """θ − η_p [∇CE(θ) + λ(θ − w) + μ θ]."""
    return {
        name: theta[name] - rate * (slope + strength * (theta[name] - w[name]) + decay * theta[name])
        for name, slope in slopes.items()
    }


def outer(w: Arrays, theta: Arrays, rate: float) -> Arrays:
    """w − ηλ (w − θ)."""
    return {name: w[name] - rate * (w[name] - value) for name, value in theta.items()}
