"""The slots of FedFomo, where newcomers get the mean; without a word on how models travel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import ENCODER, Array, Arrays, Pass, cross_entropy
from .oracles import Oracle, SiteArrays, Upload, average, below


class FomoShaped(Oracle):
    """The model is the site's own; `old.…` is the mix it trained from last."""

    uniform = True
    opaque = ("first",)

    def first_shared(self) -> Arrays:
        self.models: dict[str, Arrays] = {}
        self.preference: dict[tuple[str, str], float] = {}
        return {}

    def shares(self, t: int) -> set[str]:
        return set()

    def names(self) -> set[str]:
        """What is sent of a model: parameters, under `local_stats`."""
        return below(self.init, "encoder", "head")

    def receive(self, site: str, t: int) -> Arrays:
        """A newcomer starts from the mean of all models the coordinator has; the others keep their own."""
        w = self.init | self.vault.get(site, {})
        if site not in self.since and self.models:
            w |= average([Upload(1, model) for model in self.models.values()], self.names())
        return w

    def liking(self, site: str, peer: str) -> float:
        """P[i, j], which starts as the identity."""
        return self.preference.get((site, peer), float(site == peer))

    def peers(self, site: str) -> list[str]:
        """The M sites liked best among those that have sent a model; equal liking goes by name."""
        return sorted(self.models, key=lambda peer: (-self.liking(site, peer), peer))[
            : int(self.settings["slots"])
        ]

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        w, data = self.receive(site, t), self.data[site]
        liked = self.mix(w, site)
        for name in self.names():
            w[f"old.{name}"] = w[name]
        self.learn(w, data)
        self.keep(site, t, w)
        return Upload(1, w | {"liked": liked}), self.scores(w, data.test_x)

    def mix(self, w: Arrays, site: str) -> Array:
        """w_i ← Σ q_k w_k over what lowers the validation loss; gives the raw q of each slot."""
        data, names, offers = self.data[site], sorted(self.names()), self.peers(site)
        if site not in self.since:
            # A newcomer's slots all held the mean it started from.
            return np.zeros(len(offers))
        old = {name: w[f"old.{name}"] for name in names}
        liked = np.zeros(len(offers))
        for slot, peer in enumerate(offers):
            offer = {name: self.models[peer][name] for name in names}
            gain = self.loss(w | old, data) - self.loss(w | offer, data)
            apart = np.sqrt(sum(((offer[name] - old[name]) ** 2).sum() for name in names))
            liked[slot] = gain / (apart + 1e-5)
        weights = np.maximum(liked, 0.0)
        if weights.any():
            weights = weights / weights.sum()
            for name in names:
                w[name] = sum(q * self.models[peer][name] for q, peer in zip(weights, offers, strict=True))
        return liked

    def loss(self, w: Arrays, data: SiteArrays) -> float:
        """Validation loss in evaluation mode, with the site's own running statistics."""
        run = Pass(w, training=False)
        o = run.linear("head", run.chain(ENCODER, data.validation_x)[0])[0]
        return cross_entropy(o, data.validation_y)[0]

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        self.preference |= {
            (site, peer): self.liking(site, peer) + q
            for site, upload in uploads.items()
            for peer, q in zip(self.peers(site), upload.w["liked"], strict=True)
        }
        self.models |= {site: upload.w for site, upload in uploads.items()}

    def state(self) -> Arrays:
        return {f"liking.{site}.{peer}": np.array(value) for (site, peer), value in self.preference.items()}
