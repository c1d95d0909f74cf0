"""Where the time of a small round goes: `python -m tests.benchmarks.transport.account [--sites 10] [--out FILE]`.

Plays B9's federation with each process counting its work (`start/costs.py`), and prints for the coordinator, the
daemons and the trainers what one site costs in one round: how often, processor milliseconds, milliseconds. What is
counted under no kind is the event loop, gRPC with its TLS, and the lines between.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from tests.benchmarks.transport import machine, ours
from tests.benchmarks.transport.ours import COSTS, Recording
from tests.benchmarks.transport.workload import SMALL, Workload

ROLES = {"pfl_client.trainer": "trainer", "pfl_client": "site", "pfl_server": "coordinator"}
"""Who a process is, by what stands in its command; the first that fits."""

THREAD = "in thread "
"""Before a thread's name: what it used is the same processor once more, and in no sum."""

Line: TypeAlias = dict[str, Any]
"""A line of a process: names and whatever they stand for."""


@dataclass(frozen=True)
class Cost:
    """How often something was done, in processor seconds and seconds."""

    count: float = 0.0
    processor: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.count + other.count, self.processor + other.processor, self.seconds + other.seconds)

    def since(self, before: Cost) -> Cost:
        """What was added after an earlier look."""
        return Cost(
            self.count - before.count, self.processor - before.processor, self.seconds - before.seconds
        )

    def over(self, parts: float) -> Cost:
        """The share of one of so many."""
        return Cost(self.count / parts, self.processor / parts, self.seconds / parts)


@dataclass
class Process:
    """What one process has told of itself."""

    role: str
    began: float
    """When it was started, as a Unix time."""
    states: list[Line] = field(default_factory=list)
    spans: list[Line] = field(default_factory=list)

    def between(self, start: float, end: float) -> tuple[dict[str, Cost], float]:
        """By kind, what it did from one moment to another, and its processor seconds."""
        first, last = self._at(start), self._at(end)
        kinds = {
            kind: Cost(*sums).since(Cost(*first["sums"].get(kind, ()))) for kind, sums in last["sums"].items()
        }
        threads = last.get("threads", {}).items()
        for name, used in threads:
            kinds[f"{THREAD}{name}"] = Cost(0, used - first["threads"].get(name, 0.0))
        return kinds, last["processor"] - first["processor"]

    def _at(self, moment: float) -> Line:
        place = bisect_left(self.states, moment, key=lambda state: float(state["at"]))
        return self.states[min(place, len(self.states) - 1)]


@dataclass(frozen=True)
class Account:
    """By role, what one site costs in one round: each kind of work, and the processor in all."""

    kinds: Mapping[str, Mapping[str, Cost]]
    processor: Mapping[str, float]
    rate: float
    """Rounds a second, while all was counted."""


def read_processes(folder: Path) -> list[Process]:
    """What every process of a federation has told."""
    return [process for path in sorted(folder.glob("*.costs")) if (process := _read_process(path))]


def _read_process(path: Path) -> Process | None:
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    if not lines:
        return None
    role = next((role for sign, role in ROLES.items() if sign in lines[0]["argv"]), "")
    states = [line for line in lines if "sums" in line]
    spans = [line for line in lines if "span" in line]
    return Process(role, lines[0]["began"], states, spans) if role and states else None


def play(workload: Workload, folder: Path) -> tuple[Recording, list[Process]]:
    """Play a federation whose processes count."""
    told = folder / "costs"
    os.environ[COSTS] = str(told)
    try:
        recording = ours.play(workload, folder / "home")
    finally:
        del os.environ[COSTS]
    return recording, read_processes(told)


def reckon(recording: Recording, processes: Sequence[Process]) -> Account:
    """What one site costs in one round, of the rounds that count."""
    start, end = recording.commits[0], recording.commits[-1]
    parts = len(recording.rounds) * recording.workload.cohort
    kinds: dict[str, dict[str, Cost]] = defaultdict(lambda: defaultdict(Cost))
    processor: dict[str, float] = defaultdict(float)
    for process in processes:
        found, took = process.between(start, end)
        processor[process.role] += took / parts
        for kind, cost in found.items():
            kinds[process.role][kind] += cost.over(parts)
    return Account(kinds, processor, len(recording.rounds) / (end - start))


def show(account: Account, console: Console) -> None:
    """A table for each role, the dearest kind first."""
    console.print(f"{account.rate:.2f} rounds a second while counting; below: of one site, in one round")
    for role, kinds in sorted(account.kinds.items()):
        table = Table(
            role, "times", "processor ms", "ms", title=f"{role}: {account.processor[role] * 1e3:.2f} ms"
        )
        order = sorted(
            kinds.items(), key=lambda each: (each[0].startswith(THREAD), -each[1].processor, each[0])
        )
        for kind, cost in order:
            table.add_row(
                kind, f"{cost.count:.2f}", f"{cost.processor * 1e3:.3f}", f"{cost.seconds * 1e3:.3f}"
            )
        counted = sum(cost.processor for kind, cost in kinds.items() if not kind.startswith(THREAD))
        rest = account.processor[role] - counted
        table.add_row("event loop, gRPC, TLS and the lines between", "", f"{rest * 1e3:.3f}", "")
        console.print(table)
    console.print(f"processor in all: {sum(account.processor.values()) * 1e3:.2f} ms")


def to_json(account: Account) -> dict[str, object]:
    """Everything as plain values."""
    kinds = {
        role: {kind: [cost.count, cost.processor, cost.seconds] for kind, cost in each.items()}
        for role, each in account.kinds.items()
    }
    return {"rate": account.rate, "processor": dict(account.processor), "kinds": kinds}


def parse() -> argparse.Namespace:
    """The command's words."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--sites", type=int, default=10)
    words.add_argument("--rounds", type=int, default=40)
    words.add_argument("--durability", choices=("power", "process"), default="power")
    words.add_argument(
        "--folder", type=Path, help="where states are kept meanwhile; a disk, for honest fsync"
    )
    words.add_argument("--out", type=Path, help="write the account as JSON")
    return words.parse_args()


def main() -> None:
    """Play, reckon, print."""
    said = parse()
    durability = "" if said.durability == "power" else said.durability
    workload = Workload(said.sites, SMALL, rounds=said.rounds, durability=durability)
    facts = machine.describe()
    with tempfile.TemporaryDirectory(prefix="pfl-account-", dir=said.folder) as folder:
        account = reckon(*play(workload, Path(folder)))
    console = Console(width=110)
    show(account, console)
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))
    if said.out:
        said.out.write_text(json.dumps({"machine": facts, **to_json(account)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
