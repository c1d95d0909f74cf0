"""What was measured, as a file for other commands and as a table for people."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from rich.table import Table

FORMAT = 1
MIB = 2**20
MEGA = 10**6
WORTH_NAMING = 50 * MEGA


class Spread(TypedDict):
    """One figure per counted round, and what they come to."""

    median: float
    least: float
    most: float
    each: list[float]


class Cpu(TypedDict):
    """Processor seconds a round, the mean over the counted rounds."""

    coordinator: float
    sites: float


class Resident(TypedDict):
    """Peaks of the coordinator's memory in bytes, over the whole run."""

    together: int
    each: dict[str, int]
    threads: int


class Result(TypedDict):
    """What one measurement found."""

    round_seconds: Spread
    wire_bytes: Spread
    cpu_seconds: Cpu
    coordinator_memory: Resident


class Subject(TypedDict):
    """What one measurement was of."""

    peer: str
    version: str
    case: str
    sites: int
    size: str
    arrays: int
    model_bytes: int
    rounds: int
    load_before: float


class Line(Subject, Result):
    """A measurement with its result, as it stands in the file."""


class Machine(TypedDict):
    """Where it was measured; absolute figures move from machine to machine."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str


class Report(TypedDict):
    """The whole file."""

    format: int
    date: str
    remark: str
    machine: Machine
    results: list[Line]
    failed: dict[str, str]


def summarise(figures: Sequence[float]) -> Spread:
    """Median and range of one figure per round."""
    each = [round(figure, 4) for figure in figures]
    return {
        "median": round(statistics.median(figures), 4),
        "least": min(each),
        "most": max(each),
        "each": each,
    }


def describe_machine() -> Machine:
    """What the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def begin(remark: str) -> Report:
    """A report without results yet."""
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "remark": remark,
        "machine": describe_machine(),
        "results": [],
        "failed": {},
    }


def tabulate(report: Report) -> Table:
    """The table people read."""
    machine = report["machine"]
    title = f"{report['date']}  {machine['cpu']}, {machine['cores']} cores  {report['remark']}"
    table = Table(title=title, title_justify="left")
    for heading in (
        "peer",
        "case",
        "round, s",
        "MiB a round (ideal)",
        "coordinator, peak MB",
        "CPU s a round",
    ):
        table.add_column(heading)
    for line in report["results"]:
        table.add_row(*_write(line))
    for case in report["failed"]:
        table.add_row(*case.split(), "failed")
    return table


def _write(line: Line) -> list[str]:
    seconds, wire, spent = line["round_seconds"], line["wire_bytes"], line["cpu_seconds"]
    ideal = 2 * line["sites"] * line["model_bytes"]
    return [
        f"{line['peer']} {line['version']}",
        line["case"],
        f"{seconds['median']:.2f} ({seconds['least']:.2f} to {seconds['most']:.2f})",
        f"{wire['median'] / MIB:,.1f} ({ideal / MIB:,.1f})",
        _write_memory(line["coordinator_memory"]),
        f"{spent['coordinator']:.2f} coordinator, {spent['sites']:.2f} sites",
    ]


def _write_memory(memory: Resident) -> str:
    large = [f"{peak / MEGA:,.0f}" for peak in memory["each"].values()]
    return f"{memory['together'] / MEGA:,.0f} together; {' + '.join(large)}; {memory['threads']} threads"
