"""FedAMP: each site is pulled towards a mix of all models, in which those near its own weigh most."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import Array, Arrays
from .oracle_models import MODEL, Whole, sent
from .oracles import Setting, SiteArrays, Upload, average, below


class FedAmp(Whole):
    """The model is the site's own; what comes down, u, is only a place to be pulled to."""

    opaque = ("first", "squares")
    defaults: Mapping[str, Setting] = {
        "bn_policy": "local_stats",
        "alpha_k": 1000.0,
        "lambda": 1.0,
        "sigma": 0.1,
    }

    def first_shared(self) -> Arrays:
        self.models: dict[str, Arrays] = {}
        self.weights: dict[tuple[int, str], dict[str, float]] = {}
        super().first_shared()
        return {}

    def shares(self, t: int) -> set[str]:
        return set()

    def names(self) -> set[str]:
        """What is sent of a model: parameters, less what the batch-norm policy keeps."""
        return sent(self.init, self.policy, *MODEL) & below(self.init, *MODEL)

    def mixed(self, site: str, t: int) -> Arrays:
        """u_i; for a site without a model here the mean of all, and the first model before there are any."""
        if not self.models:
            return {name: self.init[name] for name in self.names()}
        if site not in self.models:
            return average([Upload(1, model) for model in self.models.values()], self.names())
        alpha, sigma = self.number("alpha_k"), self.number("sigma")
        self.weights[t, site] = xi = attention(site, self.models, alpha, sigma)
        return {name: sum(xi[peer] * self.models[peer][name] for peer in xi) for name in self.names()}

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        self.turn = site, t
        w, data, u = self.receive(site, t), self.data[site], self.mixed(site, t)
        self.draw_near(w, data, u)
        self.keep(site, t, w)
        return Upload(1, {name: w[name] for name in self.names()}), self.scores(w, data.test_x)

    def draw_near(self, w: Arrays, data: SiteArrays, u: Arrays) -> None:
        """Local training of CE + λ/(2α_k) ‖w − u‖²."""
        strength = self.number("lambda") / self.number("alpha_k")
        self.run(w, below(w, *MODEL), lambda part: self.pulled(w, part, u, strength), data, self.epochs)

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        self.models = self.models | {site: upload.w for site, upload in uploads.items()}

    def state(self) -> Arrays:
        return {}


def attention(site: str, models: Mapping[str, Arrays], alpha: float, sigma: float) -> dict[str, float]:
    """ξ_i·, with what is left for the site itself; never less than nothing."""
    xi = {
        peer: alpha * np.exp(-(distance(models[site], models[peer]) ** 2) / sigma) / sigma
        for peer in sorted(models)
        if peer != site
    }
    whole = sum(xi.values())
    if whole > 1:
        xi = {peer: value / whole for peer, value in xi.items()}
    return xi | {site: max(0.0, 1.0 - whole)}


def distance(one: Arrays, other: Arrays) -> float:
    """‖w_i − w_j‖ over all their numbers."""
    return float(np.sqrt(sum(float(((one[name] - other[name]) ** 2).sum()) for name in one)))
