"""Trains one model twice, with the product and by hand, in turns, each in a process of its own; tells the processor's
seconds.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from pfl_client.trainer import tasks
from pfl_client.trainer_process.process import ENVIRONMENT
from pfl_common import methods
from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.randomness import generators
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from tests.benchmarks.training.loop import Site

CLASSES = 10
TASK = Task(Kind.TRAIN, 1, 10)
LIMIT = 1.05
Way = Literal["ours", "by hand"]


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
    seconds: dict[Way, list[float]] = {"ours": [], "by hand": []}
    with ExitStack() as stack:
        workers = {way: stack.enter_context(Worker(way, method, network)) for way in seconds}
        for turn in range(turns + 1):
            for way in seconds if turn % 2 else reversed(seconds):
                seconds[way].append(workers[way].play())
    return Row(method, network.name, tuple(seconds["ours"][1:]), tuple(seconds["by hand"][1:]))


class Worker:
    """A process that trains in one way, an epoch whenever it is told to: each as it would be alone on a machine."""

    def __init__(self, way: Way, method: str, network: Network) -> None:
        said = json.dumps({"way": way, "method": method, "network": asdict(network)})
        command = [sys.executable, "-m", "tests.benchmarks.training.worker", said]
        # The product's trainer is started with these; a loop by hand as any program.
        own = ENVIRONMENT if way == "ours" else {}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**own, **os.environ}
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        """The end of its input is its own."""
        self._process.communicate()

    def play(self) -> float:
        """The processor seconds of one epoch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def train_ours(case: Case, twin: Participant) -> None:
    """What lies between a download and an update."""
    with generators.scope("training"):
        tasks.learn(twin, case.data, TASK)


def values(model: Participant) -> dict[str, Tensor]:
    """All that a training may change."""
    return {name: value.detach() for name, value in model.state_dict().items() if value.is_floating_point()}
