"""Ditto: FedAvg for all, and beside it a model of one's own that is pulled towards the common one.

Li et al., Ditto: Fair and Robust Federated Learning Through Personalization (ICML 2021).
Rule: a site trains its own model v for E_p epochs on CE(v) + (mu/2) ‖v − w^t‖², where w^t is the common model as it
was received; then it trains w^t for E epochs as FedAvg does and sends it. The next w is the mean weighted by
samples. v predicts.
Travels: the common model w, less what `bn_policy` keeps at home. Stays: v with its own batch-norm statistics; of w
the statistics, counters.
Departures: none from the paper, which calls mu lambda; its own scripts have mu = 1. v starts as the first w that
the site receives.
Costs: the bytes of FedAvg; two models in memory and training twice.
Choice: a safe first choice where every site needs a model of its own: mu leads from training alone
(0) to FedAvg (large), and v is trained in full either way. When sites must stay cheap, choose FedPer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated

from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import travelling
from pfl_common.learning.proximal import distance, square_distance
from pfl_common.learning.second_model import build_second, predict, start_second
from pfl_common.models import Backbone
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """The pull, and how long the personal model is trained."""

    mu: Annotated[float, Field(ge=0, le=1000), Why("less than 0 pushes away; usual are 0.1 to 2")] = 1.0
    """mu (the paper's lambda): strength of the pull of v towards w^t; 0 is training alone."""
    personal_epochs: Annotated[int, Field(ge=1, le=1_000_000), Why("without one v never learns")] = 1
    """E_p: epochs on v in one round; `epochs`, E, are those on w."""


class Client(Participant):
    """Train one's own model near to the common one, then the common one."""

    settings: Config
    copies_shared = ("personal",)
    head: nn.Module
    whole_batch = ""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self.personal = build_second(self)

    def travels(self, phase: str) -> Iterable[str]:
        """The common model w."""
        return travelling(self, self.settings.bn_policy, ["encoder", "head"])

    def receive(self, down: State, task: Task) -> None:
        """Take w; a site that never trained starts its own model there."""
        super().receive(down, task)
        if task.is_first:
            start_second(self.personal, self)

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E_p epochs on v, then E on w, each numbering its shuffles from 0."""
        # v goes first: as long as w is not trained it is w^t itself, and no third model is needed.
        received, own = self._common(), self.personal.parameters()
        personal_loss, epochs = self._pulled_to(received), self.settings.personal_epochs
        loss = sgd.train(self, own, personal_loss, data=data, task=task, epochs=epochs)
        apart = distance(self.personal, received)
        common = chain(self.encoder.parameters(), self.head.parameters())
        shared = sgd.train(
            self, common, lambda x, y: cross_entropy(self.head(self.encoder(x)), y), data=data, task=task
        )
        return {"loss": loss, "loss_shared": shared, "apart": apart}

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """E_p epochs a round on v, near to w as it came."""
        loss, own, epochs = self._pulled_to(self._common()), self.personal, self.settings.personal_epochs
        return newcomer.fit(self, loss, data=data, task=task, parameters=own.parameters(), epochs=epochs)

    def _common(self) -> State:
        """w, by the names that v has for it; looked at and not copied."""
        return State.view(self, [name for name, _ in self.personal.named_parameters()])

    def _pulled_to(self, received: State) -> sgd.Loss:
        """The cross entropy of v and its pull towards w^t."""

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(self(x), y) + self.settings.mu / 2 * square_distance(self.personal, received)

        return loss

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the personal model."""
        return predict(self.personal, x)


Server = Averaging
DIAGNOSTICS = {
    "loss": "Cross entropy of the personal model and its pull, in the last epoch of its training.",
    "loss_shared": "Cross entropy of the common model, in the last epoch of its training at the site.",
    "apart": "How far the personal model is from the common one as received, once it is trained: the norm of the "
    "difference of all parameters. A larger mu makes it smaller.",
}
"""What is told by `learn`, each number in a sentence."""
NEWCOMER = (
    "Its personal model v begins at the shared model w and trains ten times E_p epochs with the pull towards w; w "
    "is taken as it is."
)
SHOWS = ""
_FEDCP: Mapping[str, JsonValue] = {
    "lr": 0.005,
    "momentum": 0.0,
    "batch": 10,
    "epochs": 1,
    "drop_last": True,
    "mu": 1.0,
    "personal_epochs": 1,
}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _FEDCP,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
}
"""The settings of the papers that compare with it: `paper` and `fedcp` are FedCP's and GPFL's with the 4-layer CNN
(ResNet-18 and fastText: `fedcp-resnet18`). They state neither mu nor E_p: 1 is that of the authors' scripts.
"""
