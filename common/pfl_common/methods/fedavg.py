"""FedAvg: one model for everybody, the mean of what the sites trained.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (AISTATS 2017).
Rule: each site trains the received model for E epochs; the next model is the mean weighted by training samples.
Travels: the whole model; batch-norm statistics too (`share_all`), as in the original. Stays: nothing but counters.
Departures: none. `bn_policy = local_stats` gives the variant of the DualFed and FedCP experiments.
"""

from __future__ import annotations

from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.halves import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning import sgd
from pfl_common.partition import BnPolicy
from pfl_common.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """FedAvg has no symbols of its own."""

    bn_policy: BnPolicy = "share_all"
    """What batch-norm layers share; the original averages everything."""


class Client(Participant):
    """Train what was received."""

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


Server = Averaging
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
SHOWS = ""
