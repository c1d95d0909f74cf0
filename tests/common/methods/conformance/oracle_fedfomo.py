"""FedFomo: a site mixes the models of others by how much each would lower its validation loss."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import Array, Arrays
from .oracle_fedamp import distance
from .oracle_models import MODEL, Whole, chosen, loss, sent
from .oracles import Setting, SiteArrays, Upload, average, below


class FedFomo(Whole):
    """The model is the site's own; `old.…` is the mix it trained from last."""

    opaque = ("first",)
    defaults: Mapping[str, Setting] = {"bn_policy": "local_stats", "M": 5, "val_ratio": 0.2}

    def first_shared(self) -> Arrays:
        self.models: dict[str, Arrays] = {}
        self.preference: dict[tuple[str, str], float] = {}
        super().first_shared()
        return {}

    def shares(self, t: int) -> set[str]:
        return set()

    def names(self) -> set[str]:
        """What is sent of a model, as far as the batch-norm policy lets it travel."""
        return sent(self.init, self.policy, *MODEL)

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
        ranked = sorted(self.models, key=lambda peer: (-self.liking(site, peer), peer))
        return ranked[: int(self.number("M"))]

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        self.turn = site, t
        w, (validation, rest) = self.receive(site, t), self.divided(site)
        liked = self.mix(w, site, validation)
        w |= {f"old.{name}": w[name] for name in self.names()}
        self.learn(w, rest)
        self.keep(site, t, w)
        return Upload(1, w | {"liked": liked}), self.scores(w, rest.test_x)

    def divided(self, site: str) -> tuple[SiteArrays, SiteArrays]:
        """A site's training samples in two, once for the whole run: to validate with and to train on."""
        data = self.data[site]
        order = self.chance.split(site, "validation", len(data.y))
        size = max(1, int(np.floor(self.number("val_ratio") * len(order))))
        return chosen(data, order[:size]), chosen(data, order[size:])

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        self.run(w, below(w, *MODEL), lambda part: self.classify(w, part), data, self.epochs)

    def mix(self, w: Arrays, site: str, validation: SiteArrays) -> Array:
        """w_i ← Σ q_k w_k over what lowers the validation loss; gives the raw q of each slot."""
        if site not in self.since:
            # A newcomer was sent the mean it started from, and nobody's model.
            return np.zeros(len(self.peers(site)))
        offers = [{name: self.models[peer][name] for name in self.names()} for peer in self.peers(site)]
        old = {name: w[f"old.{name}"] for name in self.names()}
        before, after = (
            [loss(w | model, validation.x, validation.y) for model in models] for models in ([old], offers)
        )
        liked = wish(before[0], after, [distance(old, offer) for offer in offers], 1e-5)
        weights = portions(liked)
        if weights.any():
            w |= {
                name: sum(q * offer[name] for q, offer in zip(weights, offers, strict=True)) for name in old
            }
        return liked

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        self.preference |= {
            (site, peer): self.liking(site, peer) + q
            for site, upload in uploads.items()
            for peer, q in zip(self.peers(site), upload.w["liked"], strict=True)
        }
        self.models |= {site: upload.w for site, upload in uploads.items()}

    def state(self) -> Arrays:
        return {f"liking.{site}.{peer}": np.array(value) for (site, peer), value in self.preference.items()}


def wish(before: float, after: list[float], apart: list[float], tiny: float) -> Array:
    """q_k = (L_val(w_old) − L_val(w_k)) / (‖w_k − w_old‖ + tiny)."""
    return np.array([(before - value) / (far + tiny) for value, far in zip(after, apart, strict=True)])


def portions(liked: Array) -> Array:
    """Without what is below zero, with the sum one; all zero if nothing helps."""
    wanted = np.maximum(liked, 0.0)
    return wanted / wanted.sum() if wanted.any() else wanted
