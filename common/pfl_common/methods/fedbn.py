"""FedBN: share everything but batch norm, so that sites whose images look different keep their own scaling.

Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization (ICLR 2021).
Rule: FedAvg, but every batch-norm layer stays at its site: scale, shift and running statistics (`local_bn`).
Travels: all other parameters and statistics. Stays: batch-norm layers, found by type, whatever their name.
Departures: sites count by samples, as the papers that compare with it write it; the original code averages
uniformly (`aggregation = uniform`, part of `repro`). That code takes for batch norm what has "bn" in its name, and so
shares the `downsample.1` of a residual network; here it stays. Under another `bn_policy` this is FedAvg.
Costs: a little less than FedAvg in bytes, the same in memory and time.
Choice: when sites name the same things but see them otherwise: other cameras, scanners, styles. On a network without
batch norm it is FedAvg. A new site's scale and shift are the first ones until it has trained.
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
    """FedBN has no symbols of its own."""

    bn_policy: BnPolicy = "local_bn"
    """What batch-norm layers share: nothing, which is the method."""


class Client(Participant):
    """Train what was received around the batch-norm layers one kept."""

    whole_batch = ""

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy, batch-norm layers included."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


Server = Averaging
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
NEWCOMER = (
    "Its batch norms are filled in one pass and train ten times E epochs; everything else is taken as it is."
)
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedpick": {"lr": 0.01, "momentum": 0.5, "batch": 64, "epochs": 1},
    "fedcac": {"lr": 0.1, "momentum": 0.0, "batch": 100, "epochs": 5},
    "repro": {**_DUALFED, "aggregation": "uniform"},
}
"""Settings under one name, each the optimiser of a paper that compares with FedBN: DualFed (`paper`), FedPick, FedCAC;
`repro` counts sites alike, as the authors' code does. DualFed gives each method its projector too:
`--encoder-projector`.
"""
