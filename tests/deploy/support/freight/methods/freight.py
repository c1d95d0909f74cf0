"""Freight: one large tensor goes down to a newcomer and comes up again with one added; nothing is trained.

A synthetic method: the first round of a site is one large parcel each way, and nothing else that crosses is large.
Travels: `load`. Stays: nothing.
"""

from __future__ import annotations

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pfl_common.learning.method import (
    STRICT,
    Arrivals,
    Averaging,
    Closed,
    LocalData,
    Metrics,
    Participant,
    Settings,
)
from pfl_common.models import Backbone
from pfl_common.spec.run import ClientId, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Up, Weighted


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """How much goes to and fro."""

    numbers: int = 11_689_512
    """Numbers (float32) in the tensor; those of a ResNet-18 make 45 MiB."""


class Client(Participant):
    """A model that predicts nothing and carries what it got."""

    heads = ()

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self.encoder = nn.Identity()
        self._load = torch.zeros(0)

    def receive(self, down: State, task: Task) -> None:
        """Nothing is large but what comes at first contact."""
        self._load = down.get("load", self._load)

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """One is added to every number."""
        self._load = self._load + 1
        return {}

    def report(self, data: LocalData, task: Task) -> Up:
        """All of it."""
        return Up(summed={"load": Weighted(self._load, torch.tensor(1))})

    def forward(self, x: Tensor) -> Tensor:
        """No opinion."""
        return x.new_zeros(len(x), self.classes)


class Server(Averaging):
    """A load in which every place can be told from its neighbours."""

    def start(self, template: Participant, seed: int) -> State:
        """Small whole numbers: their sums are exact."""
        numbers = self.config.numbers
        return State({"load": torch.arange(numbers).remainder(251).float()})

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """A site that has taken part gets nothing more."""
        return State()

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """What came back."""
        return Closed(arrivals.total.mean(otherwise=state), {})


SHOWS = ""
