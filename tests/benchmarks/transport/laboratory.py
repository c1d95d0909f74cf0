"""Where workloads are played: each once, or several times in turns with the yardstick."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.transport import ours, yardstick
from tests.benchmarks.transport.ours import Recording
from tests.benchmarks.transport.workload import SMALL, Workload

Result = TypeVar("Result")


@dataclass(frozen=True)
class Plan:
    """The workloads behind the rows. Equal ones are one federation."""

    many: Workload
    few: Workload
    memory: tuple[Workload, ...]
    huge: Workload
    start: Workload
    killed: Workload
    small: tuple[tuple[Workload, float], ...]
    """Each with the rounds a second it has to reach."""
    crowd: Workload
    turns: int
    """How often a workload is played that takes turns with the yardstick."""


def full_plan(durabilities: tuple[str, ...]) -> Plan:
    """What the budgets ask for."""
    many, few = Workload(10), Workload(2, rounds=10, watch_idle=True)
    small = [(Workload(10, SMALL, rounds=40), 12.0)]
    if "process" in durabilities:
        small.append((Workload(10, SMALL, rounds=40, durability="process"), 20.0))
    return Plan(
        many=many,
        few=few,
        memory=(few, many, Workload(50, rounds=4, light=True)),
        huge=Workload(4, 600_000_000, rounds=2, layout="one", light=True),
        start=Workload(1, SMALL, rounds=2),
        killed=Workload(3, rounds=4, linger=0.5, kill=True),
        small=tuple(small),
        crowd=Workload(1000, SMALL, rounds=10, participation="0.05", light=True),
        turns=2,
    )


def quick_plan() -> Plan:
    """Every row from two small federations: shows that all can be measured, and says nothing of speed."""
    tiny = 2_000
    one = Workload(2, tiny, rounds=3, linger=0.1, lease=2.5, kill=True, watch_idle=True)
    crowd = Workload(12, tiny, rounds=3, participation="0.25", light=True)
    huge = Workload(4, 30_000_000, rounds=2, layout="one", light=True)
    return Plan(
        many=one,
        few=one,
        memory=(one, crowd),
        huge=huge,
        start=one,
        killed=one,
        small=((one, 3.0),),
        crowd=crowd,
        turns=1,
    )


@dataclass
class Laboratory:
    """Plays what the rows need, when they need it, and remembers."""

    folder: Path
    plan: Plan
    own_network: bool
    tell: Callable[[str], None]
    keep: bool = False
    _played: dict[Workload, list[Recording]] = field(default_factory=dict)
    _yardsticks: dict[Workload, list[list[float]]] = field(default_factory=dict)
    _homes: int = 0

    def play(self, workload: Workload) -> Recording:
        """A federation of this kind; the first one if there are several."""
        return self.several(workload, 1)[0]

    def several(self, workload: Workload, count: int = 0) -> list[Recording]:
        """So many federations of this kind, or as many as the plan has turns."""
        held = self._played.setdefault(workload, [])
        while len(held) < (count or self.plan.turns):
            self.tell(f"playing {workload}")
            held.append(self._in_a_home(lambda home: ours.play(workload, home)))
        return held

    def pairs(self, workload: Workload) -> tuple[list[Recording], list[list[float]]]:
        """Ours and the yardstick in turns, so that a machine that changes its speed changes it for both."""
        yards = self._yardsticks.setdefault(workload, [])
        for turn in range(1, self.plan.turns + 1):
            if len(yards) < turn:
                self.tell(f"the round by hand, {workload.sites} sites")
                yards.append(self._in_a_home(lambda home: yardstick.play(workload, home)))
            self.several(workload, turn)
        return self._played[workload], yards

    def _in_a_home(self, play: Callable[[Path], Result]) -> Result:
        self._homes += 1
        home = self.folder / f"{self._homes:02d}"
        try:
            return play(home)
        finally:
            if not self.keep:
                shutil.rmtree(home, ignore_errors=True)
