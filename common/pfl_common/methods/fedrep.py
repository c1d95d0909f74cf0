"""FedRep: share what turns an image into features; fit the site's own last layer first, then the shared part.

Collins et al., Exploiting Shared Representations for Personalized Federated Learning (ICML 2021).
Rule: in each round a site trains its head for E_h epochs with the encoder held fixed, then the encoder for E_b
epochs with the head held fixed, both on the cross entropy. The next encoder is the mean weighted by samples.
Travels: the encoder, less what `bn_policy` keeps at home. Stays: the head, batch-norm statistics, counters.
Departures: from the paper, several epochs on the encoder are possible (there it is one). From its code: that
has momentum 0.5 and an L2 penalty of 0.0001 on weights. As there, the network is in train mode in both parts, so
batch-norm statistics move while the head learns. Every part has a fresh optimizer.
Costs: the bytes of FedPer, a little less than FedAvg; by default five passes over the data in a round. The
passes on the head need no backward pass through the encoder.
Choice: when sites agree on what to see and differ in what they call it, and a site can afford the passes. With
few classes and the same ones everywhere FedPer or FedAvg do as well for less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import travelling
from pfl_common.spec.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """How often the head and the encoder are trained in one round."""

    epochs: Annotated[int, Field(ge=1, le=1_000_000), Why("a round without a cycle trains nothing")] = 1
    """How often the cycle of both parts, E_h epochs and then E_b, is run in one round."""
    head_epochs: Annotated[int, Field(ge=0, le=1_000_000), Why("0 never trains the heads")] = 4
    """E_h: epochs on the head, the encoder held fixed."""
    body_epochs: Annotated[int, Field(ge=1, le=1_000_000), Why("without one nothing new is shared")] = 1
    """E_b: epochs on the encoder, the head held fixed."""


class Client(Participant):
    """First one's own head, then the shared encoder."""

    settings: Config
    head: nn.Module
    whole_batch = ""

    def travels(self, phase: str) -> Iterable[str]:
        """The encoder."""
        return travelling(self, self.settings.bn_policy, ["encoder"])

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E cycles of SGD on the cross entropy; shuffles are numbered on through all parts."""
        head, body = self.settings.head_epochs, self.settings.body_epochs
        told: Metrics = {}
        for start in range(0, self.settings.epochs * (head + body), head + body):
            if head:
                told["loss_head"] = self._train(self.head, head, first_epoch=start, data=data, task=task)
            told["loss"] = self._train(self.encoder, body, first_epoch=start + head, data=data, task=task)
        return told

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """E_h epochs a cycle on what stays: the head."""
        epochs = self.settings.epochs * self.settings.head_epochs
        return newcomer.fit(self, lambda x, y: cross_entropy(self(x), y), data=data, task=task, epochs=epochs)

    def _train(self, part: nn.Module, epochs: int, *, first_epoch: int, data: LocalData, task: Task) -> float:
        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(self(x), y)

        return sgd.train(
            self, part.parameters(), loss, data=data, task=task, epochs=epochs, first_epoch=first_epoch
        )


Server = Averaging
DIAGNOSTICS = {
    "loss": "Cross entropy in the last epoch on the encoder.",
    "loss_head": "Cross entropy in the last epoch on the head, before the encoder is trained (again): what the site "
    "makes of the shared features.",
}
"""What is told by `learn`, each number in a sentence."""
NEWCOMER = "Its head trains ten times E_h epochs a cycle; the encoder is taken as it is."
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {
    "lr": 0.01,
    "momentum": 0.5,
    "batch": 256,
    "epochs": 1,
    "head_epochs": 4,
    "body_epochs": 1,
}
_FEDCP: Mapping[str, JsonValue] = {
    **_DUALFED,
    "lr": 0.005,
    "momentum": 0.0,
    "batch": 10,
    "drop_last": True,
    "head_epochs": 1,
}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedpick": {**_DUALFED, "batch": 64, "bn_policy": "share_all"},
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "fedcac": {**_DUALFED, "lr": 0.1, "momentum": 0.0, "batch": 100},
}
"""The settings of papers that compare with it: `paper` is DualFed's (its tables are with `--encoder-projector`);
`fedcp` is for GPFL too (4-layer CNN, or ResNet-18 and fastText), with the epochs of the library used there, which the
papers do not state. FedCAC's five local epochs are ours to divide: 4 on the head, 1 on the encoder.
"""
