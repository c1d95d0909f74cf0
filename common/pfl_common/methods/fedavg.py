"""FedAvg: one model for everybody, the mean of what the sites trained.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (AISTATS 2017).
Rule: each site trains the received model for E epochs; the next model is the mean weighted by training samples.
Travels: the whole model; batch-norm statistics too (`share_all`), as in the original. Stays: nothing but counters.
Departures: none. `bn_policy = local_stats` gives the variant of the DualFed and FedCP experiments.
Costs: the model up and down once in each round, which all other methods are compared with.
Choice: when sites have data alike, or when one model for everybody is wanted; and to see what personalisation gains.
Where labels or images differ much from site to site it can be worse than training alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.learning import sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import BnPolicy
from pfl_common.spec.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """FedAvg has no symbols of its own."""

    bn_policy: BnPolicy = "share_all"
    """What batch-norm layers share; the original averages everything."""


class Client(Participant):
    """Train what was received."""

    whole_batch = ""

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


Server = Averaging
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
NEWCOMER = (
    "The shared model is taken as it is: nothing is personal but batch norms under another `bn_policy`, whose "
    "statistics are filled in one pass (with local_bn their scale and shift train ten times E epochs)."
)
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {
    "lr": 0.01,
    "momentum": 0.5,
    "batch": 256,
    "epochs": 1,
    "bn_policy": "local_stats",
}
_FEDCP: Mapping[str, JsonValue] = {
    "lr": 0.005,
    "momentum": 0.0,
    "batch": 10,
    "epochs": 1,
    "drop_last": True,
    "bn_policy": "local_stats",
}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "fedpick": {"lr": 0.01, "momentum": 0.5, "batch": 64, "epochs": 1, "bn_policy": "share_all"},
    "fedcac": {"lr": 0.1, "momentum": 0.0, "batch": 100, "epochs": 5, "bn_policy": "local_stats"},
}
"""Settings under one name, each the optimiser of a paper that compares with FedAvg: DualFed (`paper`), FedCP for its
4-layer CNN and for ResNet-18 or fastText (GPFL has the same), FedPick, FedCAC. In all but FedPick the statistics of
batch norms stay at their sites. DualFed gives each method its projector too: `--encoder-projector`.
"""
