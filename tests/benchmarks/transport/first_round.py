"""What happens until the first round is closed: `python -m tests.benchmarks.transport.first_round [--together]`.

Starts a coordinator and its sites on this machine with a tiny model and prints, for each process, its named stretches
from the start of the coordinator on: imports, keys, ports, data, the first model, the first task. Processor seconds are
a stretch's own, without those of stretches within it, so that they add up to what the process used. What `import torch`
took of them is the floor: coordinator and trainers cannot begin to compute with less.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.benchmarks.transport import machine
from tests.benchmarks.transport.account import Process, read_processes
from tests.benchmarks.transport.observing import moment
from tests.benchmarks.transport.ours import COSTS, LOG, Federation, write_data
from tests.benchmarks.transport.workload import Workload
from tests.deploy.support.processes import PROGRAMS

TINY = 1_000
"""Numbers of the model."""
PATIENCE_SECONDS = 120.0
SHORTEST_SECONDS = 0.02
"""A shorter stretch is not worth a line."""
SETTLE_SECONDS = 1.0
"""Processes write what they count now and then: so long after the round the last of it is there."""
FLOOR = "import torch"


def play(sites: int, folder: Path, *, together: bool) -> tuple[float, list[Process]]:
    """Seconds from the coordinator's start to the end of round 1, and what the processes have told."""
    told, workload = folder / "costs", Workload(sites, TINY, rounds=1)
    os.environ[COSTS] = str(told)
    try:
        with Federation(folder / "home", sampled=True) as federation:
            ended = _until_first_round(federation, workload, together=together)
            threading.Event().wait(SETTLE_SECONDS)
    finally:
        del os.environ[COSTS]
    processes = read_processes(told)
    began = min(process.began for process in processes if process.role == "coordinator")
    return ended - began, processes


def _until_first_round(federation: Federation, workload: Workload, *, together: bool) -> float:
    free = ("--port", "0", "--enrol-port", "0", "--http-port", "0")
    folders = [write_data(federation.home / "data" / f"site_{n:03d}") for n in range(workload.sites)]
    federation.launch("server", "-c", PROGRAMS["pfl-server"], *free, *LOG, *workload.words())
    if not together:
        federation.wait_until(
            lambda: federation.discovery(), "the coordinator's ports", seconds=PATIENCE_SECONDS, poll=0.01
        )
    for data in folders:
        federation.launch(data.name, "-c", PROGRAMS["pfl-client"], "--data", data, *LOG)
    log = federation.log("server")
    federation.wait_until(
        lambda: log.find("round closed"), "the first round", seconds=PATIENCE_SECONDS, poll=0.02
    )
    return moment(log.find("round closed")[0])


def show(seconds: float, processes: list[Process], console: Console) -> None:
    """The stretches of the coordinator, of its first site and of that site's trainers, in the order they began."""
    zero = min(process.began for process in processes)
    end, total, floor = zero + seconds, 0.0, 0.0
    for role in ("coordinator", "site", "trainer"):
        same = sorted((p for p in processes if p.role == role and p.began < end), key=lambda p: p.began)
        for process in same if role == "coordinator" else same[:2]:
            console.print(_table(process, zero, end))
        used = sum(_processor_until(process, end) for process in same)
        total += used
        floor += sum(span["processor"] for p in same for span in p.spans if span["span"] == FLOOR)
        console.print(f"{role}: {len(same)} processes, {used:.2f} s of processor\n")
    console.print(f"first round closed after {seconds:.2f} s and {total:.2f} s of processor")
    console.print(f"of these the floor, `{FLOOR}` alone: {floor:.2f} s; all else: {total - floor:.2f} s")


def _table(process: Process, zero: float, end: float) -> Table:
    title = f"{process.role}, started at {process.began - zero:.2f} s"
    table = Table("from s", "for s", "processor s", "what", title=title)
    rest = used = _processor_until(process, end)
    for span in sorted(process.spans, key=lambda span: float(span["from"])):
        took, own = span["to"] - span["from"], span["processor"]
        if span["from"] < end and took >= SHORTEST_SECONDS:
            words = "" if own is None else f"{own:.2f}"
            table.add_row(f"{span['from'] - zero:.2f}", f"{took:.2f}", words, span["span"])
            rest -= own or 0.0
    table.add_row("", "", f"{rest:.2f}", "calls, signatures, TLS, the event loop: what is no stretch above")
    table.add_row("", "", f"{used:.2f}", "in all")
    return table


def _processor_until(process: Process, end: float) -> float:
    """Processor seconds until a moment, which lies between two of the moments at which the process told them."""
    before, used = process.began, 0.0
    for state in process.states:
        if state["at"] >= end:
            share = (end - before) / (state["at"] - before)
            return used + share * (float(state["processor"]) - used)
        before, used = float(state["at"]), float(state["processor"])
    return used


def main() -> None:
    """Play, print."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--sites", type=int, default=2)
    words.add_argument("--together", action="store_true", help="do not wait for the coordinator's ports")
    words.add_argument("--turns", type=int, default=3)
    words.add_argument("--folder", type=Path, help="where states are kept meanwhile")
    words.add_argument("--out", type=Path, help="write the seconds as JSON")
    said, console, facts = words.parse_args(), Console(width=110), machine.describe()
    seconds: list[float] = []
    for _ in range(said.turns):
        with tempfile.TemporaryDirectory(prefix="pfl-first-", dir=said.folder) as folder:
            took, processes = play(said.sites, Path(folder), together=said.together)
        seconds.append(took)
    show(took, processes, console)
    each = ", ".join(f"{one:.2f}" for one in seconds)
    console.print(f"median of {said.turns}: {median(seconds):.2f} s ({each})")
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))
    if said.out:
        said.out.write_text(json.dumps({"machine": facts, "sites": said.sites, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
