"""Plays the round that is written by hand, in processes of its own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from pfl_common.identity import Authority
from tests.benchmarks.transport.observing import Observer
from tests.benchmarks.transport.ours import HERE, PER_PROCESS, Before, Federation, nothing_before
from tests.benchmarks.transport.workload import Workload


@dataclass(frozen=True)
class Played:
    """Rounds by hand as they were seen."""

    rounds: list[float]
    """Seconds of each that counts."""
    cpu: float
    """Processor seconds of its coordinator for one of them, on average."""
    wire: list[int]
    """Bytes the interfaces carried in each."""


def play(workload: Workload, home: Path) -> list[float]:
    """Seconds of each round that counts."""
    return watch(workload, home).rounds


def watch(workload: Workload, home: Path, *, before: Before = nothing_before) -> Played:
    """Play it and look on. Light sites are many to a process, as with ours."""
    observer, host = Observer(), workload.host or "127.0.0.1"
    with Federation(home, before=before) as machine:
        _write_keys(home, host)
        size = ("--bytes", str(workload.model_bytes), "--rounds", str(workload.rounds + 1), "--host", host)
        sites = ("--sites", str(workload.sites))
        program = HERE / "minimal.py"
        coordinator = machine.launch("coordinator", program, "coordinator", home, *sites, *size)
        observer.watch("coordinator", coordinator.pid)
        observer.start()
        machine.wait_until((home / "port").exists, "the yardstick's start", seconds=60)
        together = PER_PROCESS if workload.light else 1
        for first in range(0, workload.sites, together):
            count = ("--count", str(min(together, workload.sites - first)))
            machine.launch(f"site_{first}", program, "site", home, "--number", str(first), *count, *size)
        ended = home / "rounds.json"
        machine.wait_until(ended.exists, "the yardstick's last round", seconds=workload.patience)
        observer.stop()
        moments = json.loads(ended.read_text())
    track = observer.tracks["coordinator"]
    spent = track.cpu_at(moments[-1]) - track.cpu_at(moments[0])
    carried = [observer.wire_at(moment) for moment in moments]
    return Played(
        [b - a for a, b in pairwise(moments)], spent / workload.rounds, [b - a for a, b in pairwise(carried)]
    )


def _write_keys(home: Path, host: str) -> None:
    now = datetime.now(UTC)
    authority = Authority.open_or_create(home / "authority", now=now)
    pair = authority.server_certificate([host], now=now)
    (home / "server.key").write_bytes(pair[0])
    (home / "server.pem").write_bytes(pair[1])
    (home / "ca.pem").write_bytes(authority.ca_pem)
    (home / "frame.key").write_bytes(os.urandom(32))
