"""What one hostile site costs the honest ones' rounds: `python -m tests.hostile.patience [--rounds 20] [--sites 9]`.

A real fleet and its training in this process, without a network; honest sites train for a tenth of a second. Each
attack is played against a run of its own and held against a run without a hostile site.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from pfl_common.models import catalogue
from pfl_common.spec.run import RunSpec
from tests.server.support.federation import build_spec, build_tiny
from tests.server.support.hostile import HOSTILE, World, play_or_fail
from tests.server.support.insiders import ENDING, HOLDING, Attack

WORK_SECONDS, LEASE_SECONDS = 0.1, 0.5


def build(sites: int, rounds: int, quorum: float | str) -> RunSpec:
    """A run of honest sites and a hostile one, whose deadline is an hour."""
    names = (*(f"site_{number:02d}" for number in range(sites)), HOSTILE)
    return build_spec(
        sites=names,
        rounds=rounds,
        quorum=quorum,
        straggler=3.0,
        lease_seconds=LEASE_SECONDS,
        round_seconds=3600.0,
    )


async def measure(folder: Path, spec: RunSpec, attack: Attack | None) -> tuple[World, float, str]:
    """One run, how long it took, and how it ended."""
    work = dict.fromkeys(spec.roster, WORK_SECONDS)
    world, began = World(folder, spec, work), time.monotonic()
    failed = await play_or_fail(world, attack)
    return world, time.monotonic() - began, failed


def tell(name: str, world: World, seconds: float, failed: str) -> str:
    """One line of the table."""
    rounds = [spent for spent in world.round_seconds() if spent]
    committed = [row for row in world.rows if row["status"] == "committed"]
    missed = sum(len(world.spec.roster) - 1 - len(set(row["counted"]) - {HOSTILE}) for row in committed)
    spread = (
        f"{statistics.median(rounds):6.2f} {statistics.mean(rounds):6.2f} {max(rounds):6.2f}"
        if rounds
        else "none"
    )
    ended = f"failed: {failed[:60]}" if failed else "ended"
    return f"{name:28} {spread} {seconds:7.1f} {len(world.rows) - len(committed):9} {missed:7}  {ended}"


def main() -> None:
    """All attacks, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sites", type=int, default=9)
    asked = parser.parse_args()
    catalogue._BACKBONES["tiny"] = build_tiny
    print(
        f"{asked.sites} honest sites and a hostile one, {asked.rounds} rounds, straggler 3, lease {LEASE_SECONDS} s"
    )
    print(
        f"{'attack':28} {'median':>6} {'mean':>6} {'most':>6} {'run (s)':>7} {'abandoned':>9} {'missed':>7}"
    )
    plays: list[tuple[str, Attack | None, float | str]] = [("none", None, "majority")]
    plays += [(name, attack, "majority") for name, attack in HOLDING.items()]
    plays += [("none, quorum 1", None, 1.0)]
    plays += [(f"{name}, quorum 1", attack, 1.0) for name, attack in ENDING.items()]
    for name, attack, quorum in plays:
        with tempfile.TemporaryDirectory() as folder:
            spec = build(asked.sites, asked.rounds, quorum)
            print(tell(name, *asyncio.run(measure(Path(folder), spec, attack))), flush=True)


if __name__ == "__main__":
    main()
