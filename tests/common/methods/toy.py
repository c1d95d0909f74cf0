"""Networks, data and rounds small enough to work out by hand."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import ClassVar
from weakref import WeakSet

import torch
from torch import Tensor, nn

from pfl_common.learning.method import Arrivals, LocalData, Participant, Samples
from pfl_common.methods import Method
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum

torch.set_num_threads(1)

CLASSES = ("a", "b", "c")


def build_backbone(*, norm: bool = False, classes: int = 3) -> Backbone:
    """Two numbers in, three features; on request with a batch norm whose name does not say so."""
    layers: list[nn.Module] = [nn.Linear(2, 3)]
    if norm:
        layers.append(nn.Sequential(nn.Identity(), nn.BatchNorm1d(3)))
    return Backbone(encoder=nn.Sequential(*layers, nn.Tanh()), head=nn.Linear(3, classes), features=3)


def build_data(
    site: str = "a", *, labels: tuple[int, ...] = (0, 1, 2, 0, 1, 0, 2), classes: int = 3
) -> LocalData:
    """A site's data: the labels asked for, and numbers that depend on the site."""
    x = torch.randn(len(labels), 2, generator=generators.generator("data", site))
    part = Samples(x, torch.tensor(labels))
    return LocalData(train=part, validation=part, test=part, classes=classes, site=site, seed=7)


def build_spec(method: str, settings: dict[str, Json] | None = None) -> RunSpec:
    """A run of three sites."""
    return RunSpec(
        id="toy",
        method=method,
        settings=settings or {},
        model=Model("toy", (2,), CLASSES),
        rounds=5,
        seed=3,
        roster=("a", "b", "c"),
    )


def build_client(module: ModuleType, *, norm: bool = False, **settings: Json) -> Participant:
    """A site's half with first values given by layer name."""
    method = Method.of(module)
    client = method.build_client(build_spec(method.name, settings), build_backbone(norm=norm))
    generators.initialise(client, 3)
    return client


def ask(round: int = 1, *, kind: Kind = Kind.TRAIN, phase: str = "train", since: int = 0) -> Task:
    """One request."""
    return Task(kind=kind, round=round, rounds=5, phase=phase, since=since)


def collect(reports: dict[str, State]) -> Arrivals:
    """A round's arrivals of which only what was shown matters."""
    return Arrivals(total=Sum(), shown={site: Held(site, state) for site, state in reports.items()})


class Held:
    """An update kept by reference, which counts how often it was read."""

    def __init__(self, name: str, state: State) -> None:
        self.id, self.reads, self._state = name, 0, state

    def load(self) -> State:
        """What was shown."""
        self.reads += 1
        return self._state


class Copied(Held):
    """An update of which each reading is a copy, as from a file; it counts how many of all such copies are alive."""

    alive: ClassVar[WeakSet[Tensor]] = WeakSet()
    reads_of_all: ClassVar[int] = 0
    most: ClassVar[int] = 0

    @classmethod
    def forget(cls) -> None:
        """Count from nothing."""
        gc.collect()
        cls.alive.clear()
        Copied.most = Copied.reads_of_all = 0

    def load(self) -> State:
        """A copy; one large tensor of it stands for all."""
        copied = super().load().apply(torch.clone)
        self.alive.add(max(copied.values(), key=lambda value: value.nbytes))
        Copied.reads_of_all += 1
        Copied.most = max(Copied.most, len(self.alive))
        return copied


def gather(clients: dict[str, Participant], data: dict[str, LocalData], task: Task) -> Arrivals:
    """Fold the reports of sites that have trained, in the order of their names."""
    total, shown = Sum(), {}
    for site in sorted(clients):
        up = clients[site].report(data[site], task)
        total.add(up.summed)
        shown[site] = Held(site, up.shown)
    return Arrivals(total, shown)


def equal(one: State | dict[str, Tensor], other: State | dict[str, Tensor]) -> bool:
    """Whether two States have the same names and the same bits."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
