"""Flower and NVFlare on the same slow lines, as `tests.benchmarks.peers` measures them on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.benchmarks.peers import corner, environments
from tests.benchmarks.peers.workload import PEERS, Case, Order
from tests.benchmarks.slow_links.line import ADDRESS
from tests.benchmarks.slow_links.lines import Kind
from tests.benchmarks.slow_links.rows import Failed, Found, least_seconds

INSIDE = "tests.benchmarks.slow_links.peer_inside"
NONE = "none"
MISSING = "BENCHMARK_MISSING_PEERS"
"""Why peers are not there, as JSON by their names: found out before this program is behind slow lines itself."""


def choose(asked: Sequence[str] | None, *, quick: bool) -> tuple[str, ...]:
    """Which peers are measured: all, unless some are named; a quick pass measures those alone that are named."""
    if asked is None:
        return () if quick else PEERS
    return tuple(peer for peer in PEERS if peer in asked)


def install(peers: Iterable[str], envs: Path) -> None:
    """Make their environments; what prevents that is remembered for `measure`."""
    missing: dict[str, str] = {}
    for peer in peers:
        try:
            environments.prepare(peer, envs)
        except environments.NotInstalled as why:
            missing[peer] = str(why)
    os.environ[MISSING] = json.dumps(missing)


def measure(
    peer: str, case: Case, kind: Kind, *, rounds: int, envs: Path, folder: Path | None
) -> Found | Failed:
    """One peer on fresh lines; `rounds` count, and one more is left out. What fails is told in a line."""
    who = f"{peer} {environments.version_of(peer)}"
    if why := json.loads(os.environ.get(MISSING, "{}")).get(peer):
        return Failed(who, kind.rate, why)
    # The path of a socket in it has to be short.
    home = Path(tempfile.mkdtemp(prefix="pfl-slow-", dir=folder))
    try:
        order = Order(peer, case, rounds + 1, envs / peer, home, ADDRESS)
        result = corner.run(INSIDE, order, {"rate": kind.rate, "round_trip": kind.round_trip})
    except (OSError, subprocess.SubprocessError) as error:
        return Failed(who, kind.rate, next(filter(None, str(error).splitlines()), type(error).__name__))
    finally:
        shutil.rmtree(home, ignore_errors=True)  # an ending process may still write
    seconds, wire = result["round_seconds"]["median"], result["wire_bytes"]["median"]
    return Found(who, kind.rate, seconds, wire, least_seconds(case.model_bytes, kind))
