"""Plays a round of the method on made-up samples before the run, to learn the exact shape of every parcel.

The manifests pinned in the RunSpec are what the template really sends and gets; a method's file says nothing
of them. Of a large model there is one copy with numbers of its own at a time: what is only looked at for its shapes is
thin (`thin_tensors`).
"""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from pfl_common import methods
from pfl_common.app.allocator import give_memory_back
from pfl_common.learning.method import Arrivals, LocalData, Participant, Samples, ServerHalf, Settings
from pfl_common.learning.pixels import Pixels
from pfl_common.methods import Method
from pfl_common.randomness import generators
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.run import Json, Kind, RunSpec, Task, parcel_key
from pfl_common.tensors import pinning
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Up, flatten
from pfl_server.run.memory_estimate import NO_MEMORY, lacks_memory
from pfl_server.run.thin_tensors import SparingArithmetic, copy_whole, thin_out, thin_state, thin_update

SITE = "rehearsal"
LARGE_SAMPLE = 3 * 64 * 64
"""Numbers of a sample: above, a network's layers hold more for a few samples than it has weights."""


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsed update, kept in memory; a real one would lie in the spool."""

    id: str
    state: State

    def load(self) -> State:
        """The tensors that were shown."""
        return self.state


@dataclass
class _Stage:
    """Both halves of the method, made-up data, and the parcels seen so far."""

    half: ServerHalf
    template: Participant
    state: State
    data: LocalData
    settings: Settings
    slim: bool
    """Whether template, state and all parcels are thin."""
    down: list[State] = field(default_factory=list)
    up: list[State] = field(default_factory=list)

    def send(self, task: Task) -> None:
        """Record the parcels that a newcomer and a returning site would get, to train with and to be measured."""
        measured = dataclasses.replace(task, kind=Kind.EVALUATE)
        self.down.append(self._keep(self.half.welcome(self.state)))
        for asked in (task, measured):
            self.down.append(self._keep(self.half.send(self.state, SITE, asked)))

    def play(self, task: Task) -> None:
        """One round with one site, a newcomer."""
        self.send(task)
        # The participant is gone when its update is counted: what is summed takes more memory than it.
        up = self._train(dataclasses.replace(task, since=0))
        self.up.append(flatten(up))
        total = Sum()
        total.add(up.summed)
        shown = {SITE: Rehearsed(f"{SITE}@{task.round}", up.shown)}
        self.state = self._keep(self.half.close(self.state, Arrivals(total, shown), task).state)

    def _keep(self, state: State) -> State:
        return thin_state(state) if self.slim else state

    def _train(self, newcomer: Task) -> Up:
        # Before there is a participant: what comes of some methods is summed of single models.
        down = self._keep(self.half.welcome(self.state))
        participant = copy_whole(self.template)
        participant.settings = self.settings
        if self.slim:
            participant.arithmetic = SparingArithmetic(participant.arithmetic.precision)
        participant.receive(down, newcomer)
        participant.learn(self.data, newcomer)
        up = participant.report(self.data, newcomer)
        return thin_update(up) if self.slim else up


def rehearse(
    method: Method, spec: RunSpec, template: Participant, *, slim: bool = False
) -> dict[str, Manifest]:
    """All manifests of a run, by `parcel_key`, and "init" for the first model; the template is left alone. A `slim`
    rehearsal finds the same in less memory, and lets the template's numbers go.
    """
    # Shapes do not depend on these; a made-up site has few samples, and one pass over them is enough. Without momentum
    # and penalty a step takes no memory.
    quick: dict[str, Json] = {**spec.settings, "epochs": 1, "batch": 2, "momentum": 0.0, "weight_decay": 0.0}
    half = method.build_server(dataclasses.replace(spec, settings=quick))
    manifests, state = {"init": pinning.pin([State.view(template)])}, half.start(template, spec.seed)
    if slim:
        state = thin_state(state)
        thin_out(template)
    stage = _Stage(half, template, state, _made_up(spec), method.settle(quick), slim)
    with generators.scope(spec.seed, "rehearsal"):
        for phase, numbers in _played(method, spec):
            for number in numbers:
                stage.play(Task(Kind.TRAIN, number, spec.rounds, phase=phase, since=number - 1))
            stage.send(Task(Kind.TRAIN, numbers[-1], spec.rounds, phase=phase, since=numbers[-1]))
            for kind in Kind:
                manifests[parcel_key(kind, phase, "down")] = pinning.pin(stage.down)
            manifests[parcel_key(Kind.TRAIN, phase, "up")] = pinning.pin(stage.up)
            stage.down, stage.up = [], []
    return manifests


def _played(method: Method, spec: RunSpec) -> Iterator[tuple[str, list[int]]]:
    """Each phase with its first two rounds: the second may carry what the first does not know yet."""
    config, rounds = method.settle(spec.settings), spec.rounds
    for phase, first in method.phases(config, rounds):
        second = [n for n in (first + 1,) if n <= rounds and method.phase(config, n, rounds) == phase]
        yield phase, [first, *second]


def count_samples(spec: RunSpec) -> int:
    """The number of samples to make up: enough for batch norm, and no more if they are large, to save memory."""
    classes = len(spec.model.classes)
    return 4 if math.prod(spec.model.shape) > LARGE_SAMPLE else max(4, min(2 * classes, 16))


def _made_up(spec: RunSpec) -> LocalData:
    """Two samples for each of a few classes."""
    count = count_samples(spec)
    classes = len(spec.model.classes)
    y = torch.arange(min(classes, count // 2) if classes > count else classes).repeat(count)[:count]
    shape, chance = (len(y), *spec.model.shape), generators.generator(spec.seed, "rehearsal")
    # Numbers of words have to be such: a network for texts looks each up.
    tokens = spec.model.tokens
    x = torch.randint(tokens, shape, generator=chance) if tokens else torch.rand(shape, generator=chance)
    samples = Samples(x, y, Pixels.of(spec.model))
    return LocalData(samples, samples, samples, classes, SITE, spec.seed)


def rehearse_whole(spec: RunSpec) -> dict[str, Manifest]:
    """All manifests of a run from its specification alone, in the memory of little more than two models."""
    template = methods.build_participant(spec)
    generators.initialise(template, spec.seed)
    return rehearse(methods.load(spec.method), spec, template, slim=True)


def main() -> None:
    """A specification by standard input; the same with its manifests by standard output."""
    spec = RunSpec.from_json(sys.stdin.buffer.read())
    generators.pin_threads(spec.threads)
    give_memory_back()
    # Made-up samples are strange to some methods, and what those say of them is no news to an operator.
    logging.getLogger("pfl_common").setLevel(logging.ERROR)
    try:
        manifests = rehearse_whole(spec)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise SystemExit(NO_MEMORY) from None
    sys.stdout.write(dataclasses.replace(spec, manifests=manifests).to_json())


if __name__ == "__main__":
    main()
