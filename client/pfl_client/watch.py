"""What can be seen of a site from outside: plain numbers, read when somebody looks. They stay on the site."""

from __future__ import annotations

from dataclasses import dataclass, field

from pfl_client.bench import Done
from pfl_common.run import Kind, RunSpec, Task


@dataclass
class Watch:
    """A site's state at a glance."""

    site: str
    doing: str = "starting"
    connected: bool = False
    run: str = ""
    method: str = ""
    round: int = 0
    rounds: int = 0
    received: int = 0
    sent: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    declined: int = 0
    refused: int = 0
    trainers_lost: int = 0
    accuracy: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def enter(self, spec: RunSpec) -> None:
        """A run has taken this site in."""
        self.run, self.method, self.rounds = spec.id, spec.method, spec.rounds

    def begin(self, task: Task) -> None:
        """A task has come."""
        self.round = task.round
        self.tasks[task.kind.value] = self.tasks.get(task.kind.value, 0) + 1

    def learn(self, task: Task, done: Done) -> None:
        """A task is done: remember what it showed."""
        for name, values in done.scores.items():
            self.accuracy[name] = values[0] / values[1]
        for phase, seconds in done.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        if task.kind is Kind.TRAIN:
            self.metrics = dict(done.metrics)
