"""The daemon's state as plain numbers, read on demand. They stay on the site."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from pfl_client.run_folder.audit import Left
from pfl_client.trainer_process.api import Done
from pfl_common.metric import Summed
from pfl_common.spec.messages import DECLINES
from pfl_common.spec.run import Kind, RunSpec, Task

Doing: TypeAlias = Literal[
    "starting",
    "reading data",
    "joining",
    "waiting",
    "downloading",
    "opening",
    "training",
    "evaluating",
    "finishing",
    "keeping",
    "reporting",
    "uploading",
    "waiting for room",
    "over",
]
DOING: tuple[Doing, ...] = get_args(Doing)

Phase: TypeAlias = Literal["wait", "download", "open", "seal", "report", "upload"]
"""The daemon's part of a task; load, train and encode are measured by the trainer."""

_DURING: dict[Phase, Doing] = {
    "wait": "waiting",
    "download": "downloading",
    "open": "opening",
    "seal": "keeping",
    "report": "reporting",
    "upload": "uploading",
}
_AT_WORK: dict[Kind, Doing] = {
    Kind.TRAIN: "training",
    Kind.EVALUATE: "evaluating",
    Kind.FINISH: "finishing",
}
PHASES = (*get_args(Phase), "load", "train", "encode")


@dataclass
class RunNumbers:
    """The run this site is in, and what it measured there last."""

    id: str = ""
    method: str = ""
    rounds: int = 0
    accuracy: dict[str, float] = field(default_factory=dict)
    loss: dict[str, float] = field(default_factory=dict)
    learning: dict[str, float] = field(default_factory=dict)


@dataclass
class TrainerNumbers:
    """The trainer process: where it computes, what it holds, how far it is."""

    device: str = ""
    """Where it computes, once it has said so."""
    memory: dict[str, int] = field(default_factory=dict)
    halved: bool = False
    """Whether the last training passed its batches through the network in halves, for want of memory."""
    lost: int = 0
    """Processes that died."""
    trained: int = 0
    """Rounds since this site's process began."""
    samples: int = 0
    """Gone through in the training under way."""
    usual_samples: int = 0
    """Gone through in the last one that was done."""


@dataclass
class Watch:
    """A site's state at a glance."""

    site: str
    doing: Doing = "starting"
    connected: bool = False
    round: int = 0
    """Of the last task."""
    task_began: float | None = None
    """In seconds of the epoch."""
    tasks: dict[str, int] = field(default_factory=lambda: {kind.value: 0 for kind in Kind})
    declined: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DECLINES, 0))
    refused: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, Summed] = field(default_factory=lambda: {phase: Summed() for phase in PHASES})
    left: dict[str, Left] = field(default_factory=dict)
    """By run: what left for an earlier one has left too."""
    run: RunNumbers = field(default_factory=RunNumbers)
    trainer: TrainerNumbers = field(default_factory=TrainerNumbers)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """While open, the site is in this phase of a task; its time is counted, however it ends."""
        self.doing, began = _DURING[phase], time.perf_counter()
        try:
            yield
        finally:
            self.spend(phase, time.perf_counter() - began)

    def spend(self, phase: Phase, seconds: float) -> None:
        """Count time that went into a phase."""
        self.seconds[phase].add(seconds)

    def enter(self, spec: RunSpec) -> None:
        """A run has taken this site in: forget what was measured in another run."""
        if self.run.id != spec.id:
            self.run = RunNumbers(spec.id)
        self.run.method, self.run.rounds = spec.method, spec.rounds

    def begin(self, task: Task) -> None:
        """A task has come."""
        self.round, self.task_began = task.round, time.time()
        self.tasks[task.kind.value] += 1

    def give(self, task: Task) -> None:
        """The trainer has the task now."""
        self.doing, self.trainer.samples = _AT_WORK[task.kind], 0

    def move(self, samples: int) -> None:
        """The trainer has finished this many more samples."""
        self.trainer.samples += samples

    def decline(self, reason: str) -> None:
        """Count a task that was not done."""
        self.declined[reason] = self.declined.get(reason, 0) + 1

    def refuse(self, code: str) -> None:
        """Count a message that the coordinator did not take."""
        self.refused[code] = self.refused.get(code, 0) + 1

    def lose_trainer(self) -> None:
        """The trainer's process has died, and its memory is free."""
        self.trainer.lost += 1
        self.trainer.memory = {}

    def learn(self, task: Task, done: Done) -> None:
        """A task is done: remember what it showed."""
        run, trainer = self.run, self.trainer
        for name, (correct, samples, _, _, loss, *_) in done.scores.items():
            run.accuracy[name], run.loss[name] = correct / samples, loss
        for phase, seconds in done.seconds.items():
            self.seconds.setdefault(phase, Summed()).add(seconds)
        trainer.device, trainer.memory = done.device, dict(done.memory)
        if task.kind is Kind.TRAIN:
            run.learning, trainer.halved = dict(done.metrics), done.halved
            trainer.trained, trainer.usual_samples = trainer.trained + 1, trainer.samples
