"""A network of a single number w under a head that does nothing: the score of a sample x is w x, and is all there is.

Losses are put in place of the cross entropy, so that every step is worked out on paper.
"""

from __future__ import annotations

from types import ModuleType
from typing import cast

import torch
from torch import Tensor, nn

from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.methods import Method
from pfl_common.models import Backbone
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State


def build_number(module: ModuleType, start: float = 0.0, **settings: Json) -> Participant:
    """A site's half whose model is one number; momentum 0 and, unless said otherwise, steps of 0.1."""
    method = Method.of(module)
    config = method.settle({"momentum": 0.0, "lr": 0.1, **settings})
    backbone = Backbone(nn.Linear(1, 1, bias=False), nn.Identity(), 1)
    client = method.client(config, backbone, 3).double()
    with torch.no_grad():
        for value in client.parameters():
            value.fill_(start)
    return client


def build_samples(labels: tuple[int, ...] = (0,), x: tuple[float, ...] | None = None) -> LocalData:
    """A site's data: x is 1 for each label if nothing else is said."""
    numbers = torch.ones(len(labels)) if x is None else torch.tensor(x)
    part = Samples(numbers.double().unsqueeze(1), torch.tensor(labels))
    return LocalData(train=part, validation=part, test=part, classes=3, site="a", seed=7)


def download(value: float) -> State:
    """The common model, as it comes."""
    return State({"encoder.weight": torch.full((1, 1), value, dtype=torch.float64)})


def read(client: Participant, name: str = "encoder") -> float:
    """The number an encoder is."""
    return cast(nn.Linear, client.get_submodule(name)).weight.item()


def slide(scores: Tensor, labels: Tensor) -> Tensor:
    """F = −w: the slope is −1 everywhere."""
    return -scores.mean()


def bowl(scores: Tensor, labels: Tensor) -> Tensor:
    """F = (w − b)²/2, where the labels say b."""
    return (scores.squeeze(1) - labels).square().mean() / 2
