"""Plays the round that is written by hand, in processes of its own."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from pfl_common.identity import Authority
from tests.benchmarks.transport.ours import HERE, Federation
from tests.benchmarks.transport.workload import Workload


def play(workload: Workload, home: Path) -> list[float]:
    """Seconds of each round that counts."""
    with Federation(home) as machine:
        _write_keys(home)
        size = ("--bytes", str(workload.model_bytes), "--rounds", str(workload.rounds + 1))
        sites = ("--sites", str(workload.sites))
        program = HERE / "minimal.py"
        machine.launch("coordinator", program, "coordinator", home, *sites, *size)
        machine.wait_until((home / "port").exists, "the yardstick's start", seconds=60)
        for number in range(workload.sites):
            machine.launch(f"site_{number}", program, "site", home, "--number", str(number), *size)
        ended = home / "rounds.json"
        machine.wait_until(ended.exists, "the yardstick's last round", seconds=workload.patience)
        moments = json.loads(ended.read_text())
    return [b - a for a, b in pairwise(moments)]


def _write_keys(home: Path) -> None:
    now = datetime.now(UTC)
    authority = Authority.open_or_create(home / "authority", now=now)
    pair = authority.server_certificate(["127.0.0.1"], now=now)
    (home / "server.key").write_bytes(pair[0])
    (home / "server.pem").write_bytes(pair[1])
    (home / "ca.pem").write_bytes(authority.ca_pem)
    (home / "frame.key").write_bytes(os.urandom(32))
