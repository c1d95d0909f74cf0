"""FedPer: share what turns an image into features, and keep at each site the last layer that names the class.

Arivazhagan et al., Federated Learning with Personalization Layers (arXiv:1912.00818, 2019).
Rule: each site trains encoder and head together for E epochs, as one network with one loss; the next
encoder is the mean weighted by training samples.
Travels: the encoder, less what `bn_policy` keeps at home. Stays: the head, batch-norm statistics, counters.
Departures: the paper varies how many of the last blocks are personal; here it is the head alone. Every site's
head starts from the same first values.
Costs: FedAvg's bytes less the head's; the same memory and time.
Choice: when sites differ in which labels they have: the simplest method that helps then, and the first to try. Not when
new sites have to predict before they have trained: their head is the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import JsonValue
from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.learning import sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import travelling
from pfl_common.spec.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """FedPer has no symbols of its own."""


class Client(Participant):
    """Train the received encoder together with one's own head."""

    whole_batch = ""

    def travels(self, phase: str) -> Iterable[str]:
        """The encoder."""
        return travelling(self, self.settings.bn_policy, ["encoder"])

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy, encoder and head in the same step."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


Server = Averaging
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
NEWCOMER = "Its head trains ten times E epochs; the encoder is taken as it is."
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1}
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1, "drop_last": True}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "fedpick": {"lr": 0.01, "momentum": 0.5, "batch": 64, "epochs": 1, "bn_policy": "share_all"},
    "fedcac": {"lr": 0.1, "momentum": 0.0, "batch": 100, "epochs": 5},
}
"""Settings under one name, each the optimiser of a paper that compares with FedPer: DualFed (`paper`), FedCP for its
4-layer CNN and for ResNet-18 or fastText (GPFL has the same), FedPick, FedCAC. DualFed gives each method its projector
too: `--encoder-projector`.
"""
