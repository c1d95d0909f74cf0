"""FedRep and LG-FedAvg: one part of the model is everybody's, the other each site's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from .network import Arrays
from .oracle_models import MODEL, Whole, sent
from .oracles import Setting, SiteArrays, below


class FedRep(Whole):
    """First the head alone, then the encoder alone, as often as there are epochs."""

    defaults: Mapping[str, Setting] = {"bn_policy": "local_stats", "head_epochs": 4, "body_epochs": 1}

    def first_shared(self) -> Arrays:
        return {name: value for name, value in super().first_shared().items() if name in self.shares(1)}

    def shares(self, t: int) -> set[str]:
        return sent(self.init, self.policy, "encoder")

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        stages = {"head": int(self.number("head_epochs")), "encoder": int(self.number("body_epochs"))}
        done = 0
        for module, epochs in list(stages.items()) * self.epochs:
            slopes = partial(self.classify, w)
            self.run(w, below(w, module), slopes, data, epochs, first_epoch=done)
            done += epochs


class LgFedAvg(Whole):
    """FedAvg for some rounds, then the head alone; each site keeps the encoder of the switch."""

    defaults: Mapping[str, Setting] = {"bn_policy": "share_all", "pretrain_rounds": 0}

    def shares(self, t: int) -> set[str]:
        full = t <= int(self.number("pretrain_rounds"))
        return sent(self.init, self.policy, *(MODEL if full else ("head",)))

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        self.run(w, below(w, *MODEL), partial(self.classify, w), data, self.epochs)

    def download(self, site: str, t: int) -> Arrays:
        # Nobody averages the encoder after the switch, so the coordinator still has that of the switch:
        # for whoever has not trained since, whatever else the site may have.
        missed_the_switch = self.since.get(site, 0) <= int(self.number("pretrain_rounds"))
        return self.shared if missed_the_switch else super().download(site, t)
