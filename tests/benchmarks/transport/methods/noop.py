"""No-op: every site changes one number of what it received and sends all of it back; nothing is trained.

A synthetic method: what a round costs when learning costs nothing.
Travels: parameters of its own, as many as the run says. Stays: nothing. The backbone is not used.
"""

from __future__ import annotations

from threading import Event
from typing import Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.models import Backbone
from pfl_common.spec.run import Task

RESNET18_NUMBERS = 11_689_512


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """How much goes to and fro."""

    numbers: int = RESNET18_NUMBERS
    """Numbers (float32) of the model."""
    layout: Literal["resnet18", "one"] = "resnet18"
    """102 tensors in the proportions of a ResNet-18, or one."""
    linger: float = 0.0
    """Seconds a site takes over a task."""
    eval_point: Literal["pre", "post", "both"] = "post"
    """Measured after "training": the other points copy the model once more."""


class Client(Participant):
    """A model that predicts nothing and weighs what it is told to."""

    heads = ()

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self.encoder = nn.Identity()
        sizes = [config.numbers] if config.layout == "one" else scaled(resnet18_sizes(), config.numbers)
        self.model = nn.ParameterList(
            nn.Parameter(torch.full((size,), 0.5), requires_grad=False) for size in sizes
        )

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """Change one number."""
        if self.settings.linger:
            Event().wait(self.settings.linger)
        self.model[0][0] += 1
        return {}

    def forward(self, x: Tensor) -> Tensor:
        """No opinion."""
        return x.new_zeros(len(x), self.classes)


def scaled(sizes: list[int], numbers: int) -> list[int]:
    """As many tensors, in about the same proportions, with so many numbers in all."""
    small = [max(1, size * numbers // sum(sizes)) for size in sizes]
    largest = small.index(max(small))
    small[largest] += numbers - sum(small)
    if min(small) < 1:
        raise ValueError(f"{numbers} numbers do not make {len(sizes)} tensors: take layout=one")
    return small


def resnet18_sizes() -> list[int]:
    """The numbers in each tensor of a ResNet-18 for 1,000 classes, running statistics included."""
    sizes = [3 * 64 * 49, *norm(64)]
    before = 64
    for width in (64, 128, 256, 512):
        for first in (True, False):
            sizes += [before * width * 9, *norm(width), width * width * 9, *norm(width)]
            if first and before != width:
                sizes += [before * width, *norm(width)]
            before = width
    return [*sizes, 512 * 1000, 1000]


def norm(width: int) -> list[int]:
    """Scale, shift, mean and variance of a batch norm."""
    return [width] * 4


Server = Averaging
SHOWS = ""
