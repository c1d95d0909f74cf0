"""Trains one model twice, with the product and by hand, in turns in one process; tells the processor's seconds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from time import process_time

import torch
from torch import Tensor

from pfl_client.trainer import tasks
from pfl_common import methods
from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.randomness import generators
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from tests.benchmarks.training.by_hand import BY_HAND
from tests.benchmarks.training.loop import Site

CLASSES = 10
TASK = Task(Kind.TRAIN, 1, 10)
LIMIT = 1.05


@dataclass(frozen=True)
class Network:
    """A network, its pictures, and how many make an epoch."""

    name: str
    side: int
    samples: int


NETWORKS = {
    "cnn": Network("cnn", 32, 512),
    "resnet8": Network("resnet8", 32, 512),
    "resnet18": Network("torchvision:resnet18", 64, 256),
}


@dataclass(frozen=True)
class Row:
    """One method with one network."""

    method: str
    network: str
    ours: tuple[float, ...]
    by_hand: tuple[float, ...]
    """Processor seconds of each turn."""

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return median(self.ours) / median(self.by_hand)

    def to_json(self) -> dict[str, object]:
        """All of it, and the verdict."""
        return {**asdict(self), "ratio": self.ratio, "met": self.ratio <= LIMIT}


@dataclass(frozen=True)
class Case:
    """A model that has just received, and the data it is to learn from."""

    participant: Participant
    data: LocalData

    @property
    def site(self) -> Site:
        """The same for a loop by hand."""
        return Site(self.data.train.x, self.data.train.y, CLASSES, self.participant.settings)

    def train(self) -> Participant:
        """As a site's trainer does."""
        twin = copy.deepcopy(self.participant)
        with generators.scope("training"):
            tasks.learn(twin, self.data, TASK)
        return twin


def build(method: str, network: Network, **given: Json) -> Case:
    """A method's model on a network in a newcomer's first round, with made-up pictures and the usual settings."""
    settings: dict[str, Json] = {"batch": 32, "diagnose": False, **given}
    model = Model(network.name, (3, network.side, network.side), tuple("abcdefghij"))
    spec = RunSpec("run-1", method, settings, model, rounds=TASK.rounds, seed=5, roster=("site",))
    participant = methods.build_participant(spec)
    generators.initialise(participant, spec.seed)
    half = methods.load(method).build_server(spec)
    participant.receive(half.welcome(half.start(participant, spec.seed)), TASK)
    chance = generators.generator("pictures")
    samples = make_samples(network, chance)
    nothing = Samples(samples.x[:0], samples.y[:0])
    return Case(participant, LocalData(samples, nothing, nothing, CLASSES, "site", spec.seed))


def make_samples(network: Network, chance: torch.Generator) -> Samples:
    """Bytes, as pictures lie at a site."""
    shape = (network.samples, 3, network.side, network.side)
    x = torch.randint(256, shape, dtype=torch.uint8, generator=chance)
    return Samples(x, torch.arange(network.samples) % CLASSES)


def measure(method: str, network: Network, turns: int) -> Row:
    """So many turns, each with another one first; before them one turn that warms up and is left out."""
    case = build(method, network)
    ours: list[float] = []
    theirs: list[float] = []
    ways: list[tuple[list[float], Callable[[Participant], object]]] = [
        (ours, lambda twin: train_ours(case, twin)),
        (theirs, lambda twin: BY_HAND[method](twin, case.site)),
    ]
    for turn in range(turns + 1):
        for seconds, way in ways if turn % 2 else reversed(ways):
            twin = copy.deepcopy(case.participant)
            began = process_time()
            way(twin)
            seconds.append(process_time() - began)
    return Row(method, network.name, tuple(ours[1:]), tuple(theirs[1:]))


def train_ours(case: Case, twin: Participant) -> None:
    """What lies between a download and an update."""
    with generators.scope("training"):
        tasks.learn(twin, case.data, TASK)


def values(model: Participant) -> dict[str, Tensor]:
    """All that a training may change."""
    return {name: value.detach() for name, value in model.state_dict().items() if value.is_floating_point()}
