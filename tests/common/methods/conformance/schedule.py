"""The one schedule every method goes through, and its small world: sites, data, network, first values."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from pfl_common.learning.method import LocalData, Samples
from pfl_common.models import Backbone
from pfl_common.spec.run import ClientId
from pfl_common.tensors.state import State

torch.set_num_threads(1)

INPUTS, HIDDEN, FEATURES, CLASSES, ROUNDS, SEED = 6, 8, 5, 4, 7, 11

LABELS: dict[ClientId, tuple[int, ...]] = {
    "a": (0,) * 4 + (1,) * 5 + (2,) * 3,
    "b": (0,) * 3 + (1,) * 1 + (2,) * 5,
    "c": (0,) * 6 + (1,) * 6 + (2,) * 3,
    "d": (0,) * 3 + (1,) * 5,
    "e": (0,) * 2 + (1,) * 3 + (2,) * 2 + (3,) * 3,
    "f": (0,) * 3 + (1,) * 1 + (2,) * 3,
}
"""Training labels: d lacks class 2, only e knows class 3, b and f have one sample of class 1."""

SITES = tuple(LABELS)
BYSTANDER = "f"
"""A site that registers and is never asked to train."""
LATECOMER = "e"
"""A site nobody knew of when the run was pinned: it is not in the run's roster."""


@dataclass(frozen=True)
class Play:
    """One attempt at a round: who is asked, who is drawn to drop out, whose update is lost by accident."""

    number: int
    cohort: tuple[ClientId, ...]
    attempt: int = 1
    drops: frozenset[ClientId] = field(default_factory=frozenset)
    lost: frozenset[ClientId] = field(default_factory=frozenset)

    @property
    def counted(self) -> tuple[ClientId, ...]:
        """Whose updates reach the coordinator."""
        return tuple(site for site in self.cohort if site not in self.drops | self.lost)

    @property
    def abandoned(self) -> bool:
        """With a quorum of all that are expected to report, one accident gives the attempt up."""
        return bool(self.lost)


SCHEDULE: tuple[Play, ...] = (
    Play(1, ("a", "b", "c", "d")),
    Play(2, ("a", "b", "c"), drops=frozenset("c")),
    Play(3, ("a", "b", "c"), drops=frozenset("abc")),
    Play(4, ("a", "b", "e"), lost=frozenset("b")),
    Play(4, ("a", "b", "e"), attempt=2),
    Play(5, ("a", "c", "d", "e"), drops=frozenset("e")),
    Play(6, ("b", "c", "d"), drops=frozenset("bc")),
    Play(7, ("a", "b", "c", "d", "e"), drops=frozenset("a")),
)
"""d misses rounds 2 to 4; in round 3 nobody counts; e joins late, in an attempt that is given up."""


def build_backbone() -> Backbone:
    """Six numbers in, five features; the batch norm does not say so in its name."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        # Without bias: before a batch norm its gradient is rounding noise, which no oracle can tell.
        mix=nn.Linear(INPUTS, HIDDEN, bias=False),
        scale=nn.BatchNorm1d(HIDDEN),
        bend=nn.ReLU(),
        out=nn.Linear(HIDDEN, FEATURES),
    )
    return Backbone(nn.Sequential(layers), nn.Linear(FEATURES, CLASSES), FEATURES)


def fill(module: nn.Module, dtype: torch.dtype) -> None:
    """First values no layer would choose, so that a forgotten tensor is seen; a method's own buffers stay."""
    module.to(dtype)
    for place, (name, value) in enumerate(sorted(module.named_parameters())):
        with torch.no_grad():
            value.copy_(torch.from_numpy(_first_values(place, name, tuple(value.shape))))
    for place, (name, value) in enumerate(sorted(module.named_buffers())):
        if name.endswith("running_mean"):
            value.copy_(torch.from_numpy(0.1 * _draw(place, 3).standard_normal(tuple(value.shape))))
        if name.endswith("running_var"):
            value.copy_(torch.from_numpy(0.6 + _draw(place, 4).random(tuple(value.shape))))


def _first_values(place: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    values = _draw(place, 2).standard_normal(shape)
    # What multiplies: the weights of normalising layers, and a scale that is a single number.
    multiplies = not shape or (len(shape) == 1 and name.endswith("weight"))
    # Numpy makes a plain number of an array without dimensions as soon as it computes with it.
    return np.asarray(1.0 + 0.2 * values if multiplies else 0.4 * values)


def _draw(*words: int) -> np.random.Generator:
    return np.random.default_rng([SEED, *words])


def build_data(site: ClientId, *, name: ClientId, dtype: torch.dtype) -> LocalData:
    """A site's data under the name it is known by."""
    place = SITES.index(site)
    labels = np.array(LABELS[site])
    held_out = np.array([0, 1, 2, 0, 1, 2, 3, 0])
    train, validation, test = (
        build_samples(y, place, part, dtype) for part, y in enumerate((labels, held_out[:6], held_out))
    )
    return LocalData(train, validation, test, CLASSES, name, SEED)


def build_samples(y: np.ndarray, place: int, part: int, dtype: torch.dtype) -> Samples:
    centres = _draw(77).standard_normal((CLASSES, INPUTS))
    draw = _draw(place, part, 78)
    x = centres[y] + 0.3 * place * _draw(place, 79).standard_normal(INPUTS) / 5
    x = x + 0.7 * draw.standard_normal((len(y), INPUTS))
    return Samples(torch.from_numpy(x).to(dtype), torch.from_numpy(y))


def reverse(state: State) -> State:
    """The same tensors, put in the other way round: a method that leans on an order falls."""
    return State(dict(reversed(list(state.items()))), kept=dict(reversed(list(state.kept.items()))))
