"""FedProx and Ditto: a model that is trained while it is pulled towards the received one."""

from __future__ import annotations

from collections.abc import Mapping

from .network import Array, Arrays
from .oracle_models import MODEL, Whole, filled, logits, under, within
from .oracles import Setting, SiteArrays, below


class FedProx(Whole):
    """The model that is uploaded is pulled; also its parts that do not travel, towards their own first value."""

    defaults: Mapping[str, Setting] = {"bn_policy": "share_all", "mu": 0.01}

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        names, mu = below(w, *MODEL), self.number("mu")
        anchor = {name: w[name] for name in names}
        self.run(w, names, lambda part: self.pulled(w, part, anchor, mu), data, self.epochs)


class Ditto(Whole):
    """A second model, `personal`, is pulled; the one that is uploaded is trained as in FedAvg."""

    defaults: Mapping[str, Setting] = {"bn_policy": "local_stats", "mu": 1.0, "personal_epochs": 1}

    def receive(self, site: str, t: int) -> Arrays:
        w = super().receive(site, t)
        return w if site in self.since else w | within(self.taken(w), "personal")

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        names, mu = below(w, *MODEL), self.number("mu")
        anchor, v = {name: w[name] for name in names}, under(w, "personal")
        personal = int(self.number("personal_epochs"))
        self.run(v, names, lambda part: self.pulled(v, part, anchor, mu), data, personal)
        self.run(w, names, lambda part: self.classify(w, part), data, self.epochs)
        w |= within(v, "personal")

    def fill_statistics(self, w: Arrays, x: Array) -> None:
        w |= within(filled(under(w, "personal"), x), "personal")

    def scores(self, w: Arrays, x: Array) -> Array:
        return logits(under(w, "personal"), x)
