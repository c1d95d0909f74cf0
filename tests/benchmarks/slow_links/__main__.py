"""Measure rounds over slow lines: `python -m tests.benchmarks.slow_links [--rate 10] [--encoding int8] [--out FILE]`.

Each site is a process in a network namespace of its own, whose line to the coordinator carries 10, 100 or 1,000 Mbit/s
each way with 40 ms there and back; nothing is trained. Told are seconds and bytes of a round, of ours, of the round
written by hand, of Flower and of NVFlare, and the least that the line allows. Each line is probed before by a plain TCP
connection. It needs root on Linux with `ip` and /dev/net/tun, and at 10 Mbit/s some minutes. The peers are installed
as by `python -m tests.benchmarks.peers`; one that cannot be is said to be missing.

`--encoding` is passed on to `pfl-server`, for each of its words once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.console import Console

from tests.benchmarks.peers import environments
from tests.benchmarks.peers.workload import PEERS, Case
from tests.benchmarks.slow_links import peers
from tests.benchmarks.slow_links.line import ADDRESS
from tests.benchmarks.slow_links.lines import Kind, Lines, NoLines, Probed, expect_lines
from tests.benchmarks.slow_links.rows import (
    BY_HAND,
    MIB,
    OURS,
    Failed,
    Found,
    least_seconds,
    tabulate,
    to_json,
)
from tests.benchmarks.transport import machine, network, ours, yardstick
from tests.benchmarks.transport.workload import Workload

MODULE = "tests.benchmarks.slow_links"
RATES = (10, 100, 1000)
console = Console(stderr=True)


def main() -> int:
    """Play what is asked for on each kind of line."""
    said = parse()
    try:
        expect_lines()
    except NoLines as why:
        console.print(str(why))
        return 1
    if not os.environ.get(network.INSIDE):
        # The package index is not at the other end of a slow line.
        peers.install(said.peers, said.envs)
    if not network.enter(MODULE, sys.argv[1:]):
        console.print("no slow lines on this machine: `unshare --net true` was refused; run as root on Linux")
        return 1
    facts, probed = machine.describe(), dict[int, Probed]()
    found, failed = list[Found](), list[Failed]()
    for rate in said.rate or RATES:
        for one in measure(Kind(rate), said, probed):
            tell(one)
            (failed if isinstance(one, Failed) else found).append(one)
            write(said, facts, to_json(found, failed, probed))
        write(said, facts, to_json(found, failed, probed))
    show(found, failed, facts, quick=said.quick)
    return 0


def parse(typed: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's words."""
    words = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    words.add_argument("--rate", action="append", type=int, choices=RATES, help="Mbit/s; repeatable")
    words.add_argument("--sites", type=int, default=4, help="each with a line of its own")
    words.add_argument("--rounds", type=int, default=3, help="that count; one more is left out")
    words.add_argument("--encoding", action="append", help="passed to pfl-server; repeatable")
    words.add_argument(
        "--peer", action="append", choices=(*PEERS, peers.NONE), help="only this one, or none; repeatable"
    )
    words.add_argument(
        "--envs", type=Path, default=environments.find_cache(), help="where the peers are installed"
    )
    words.add_argument("--quick", action="store_true", help="two sites, a tiny model: shows that it runs")
    words.add_argument(
        "--probe", action="store_true", help="only make the lines and say what TCP finds there"
    )
    words.add_argument("--out", type=Path, help="write everything as JSON")
    words.add_argument(
        "--folder", type=Path, help="where states are kept meanwhile; a disk, for honest fsync"
    )
    said = words.parse_args(typed)
    if said.quick:
        said.sites, said.rounds = 2, 2
    said.peers = () if said.probe else peers.choose(said.peer, quick=said.quick)
    said.envs = said.envs.resolve()
    return said


def measure(kind: Kind, said: argparse.Namespace, probed: dict[int, Probed]) -> Iterator[Found | Failed]:
    """The round by hand, ours with each encoding, and the peers, on lines of one kind."""
    case = Case(said.sites, "small" if said.quick else "resnet18")
    with Lines(kind, said.sites) as lines:
        probed[kind.rate] = lines.probe()
        console.log(f"lines of {kind.rate} Mbit/s: plain TCP found {probed[kind.rate]}")
        for who, encoding, workload in () if said.probe else workloads(case, kind, said):
            seconds, wire = play(who, workload, lines, said.folder)
            least = least_seconds(case.model_bytes, kind)
            yield Found(who, kind.rate, seconds, wire, least, encoding)
    for peer in said.peers:
        yield peers.measure(peer, case, kind, rounds=said.rounds, envs=said.envs, folder=said.folder)


def workloads(case: Case, kind: Kind, said: argparse.Namespace) -> Iterator[tuple[str, str, Workload]]:
    """Who plays what: as many numbers as the peers' model has."""
    plain = Workload(
        case.sites, case.model_bytes // 4, rounds=said.rounds, host=ADDRESS, line=kind.rate * 1e6 / 8
    )
    yield BY_HAND, "", plain
    yield OURS, "", plain
    for encoding in said.encoding or ():
        yield OURS, encoding, replace(plain, extra=("--encoding", encoding))


def play(who: str, workload: Workload, lines: Lines, folder: Path | None) -> tuple[float, float]:
    """Seconds and bytes of a round, medians."""
    with tempfile.TemporaryDirectory(prefix="pfl-slow-", dir=folder) as home:
        place = Path(home, "play")
        if who == BY_HAND:
            hand = yardstick.watch(workload, place, before=lines.inside)
            return median(hand.rounds), median(hand.wire)
        recording = ours.play(workload, place, before=lines.inside)
        return median(recording.rounds), median(recording.wire)


def tell(one: Found | Failed) -> None:
    """As soon as it is known."""
    if isinstance(one, Failed):
        console.log(f"{one.who}: not measured: {one.why}")
    else:
        console.log(f"{one.who} {one.encoding}: {one.seconds:.2f} s, {one.wire_bytes / MIB:.1f} MiB a round")


def write(said: argparse.Namespace, facts: dict[str, object], measured: dict[str, object]) -> None:
    """Everything so far, for later comparison."""
    if said.out:
        asked = {"quick": said.quick, "sites": said.sites, "rounds": said.rounds}
        said.out.write_text(json.dumps({"machine": facts, **asked, **measured}, indent=1) + "\n")


def show(found: Sequence[Found], failed: Sequence[Failed], facts: dict[str, object], *, quick: bool) -> None:
    """The table, what is missing in it, and what it was measured on."""
    out = Console(width=150)
    out.print(tabulate(found, quick=quick))
    for one in failed:
        out.print(f"{one.who} at {one.rate} Mbit/s was not measured: {one.why}")
    out.print(", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    sys.exit(main())
