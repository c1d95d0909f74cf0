"""Measure rounds over slow lines: `python -m tests.benchmarks.slow_links [--rate 10] [--encoding int8] [--out FILE]`.

Each site is a process in a network namespace of its own, whose line to the coordinator carries 10, 100 or 1,000 Mbit/s
each way with 40 ms there and back; nothing is trained. Told are seconds and bytes of a round, of ours and of the round
written by hand, and the least that the line allows. Each line is probed before by a plain TCP connection. It needs root
on Linux with `ip` and /dev/net/tun, and at 10 Mbit/s some minutes.

`--encoding` is passed on to `pfl-server`, for each of its words once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.benchmarks.slow_links.line import ADDRESS
from tests.benchmarks.slow_links.lines import Kind, Lines, NoLines, Probed, expect_lines
from tests.benchmarks.transport import machine, network, ours, yardstick
from tests.benchmarks.transport.workload import RESNET18, Workload

MODULE = "tests.benchmarks.slow_links"
RATES = (10, 100, 1000)
BY_HAND, OURS = "by hand", "ours"
MIB = 1 << 20
console = Console(stderr=True)


@dataclass(frozen=True)
class Found:
    """A round on one kind of line."""

    who: str
    encoding: str
    rate: int
    seconds: float
    wire_bytes: float
    least_seconds: float
    """The model there and back by one site's line, as float32, and one round trip."""
    probed: tuple[float, float]
    """Round trip in seconds and Mbit/s, as plain TCP found them."""


def main() -> int:
    """Play what is asked for on each kind of line."""
    said = parse()
    try:
        expect_lines()
    except NoLines as why:
        console.print(str(why))
        return 1
    if not network.enter(MODULE, sys.argv[1:]):
        console.print("no slow lines on this machine: `unshare --net true` was refused; run as root on Linux")
        return 1
    facts, found = machine.describe(), list[Found]()
    for rate in said.rate or RATES:
        found += measure(Kind(rate), said)
    show(found, facts, quick=said.quick)
    if said.out:
        rows = [asdict(one) for one in found]
        content = {"machine": facts, "quick": said.quick, "sites": said.sites, "rows": rows}
        said.out.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    """The command's words."""
    words = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    words.add_argument("--rate", action="append", type=int, choices=RATES, help="Mbit/s; repeatable")
    words.add_argument("--sites", type=int, default=4, help="each with a line of its own")
    words.add_argument("--rounds", type=int, default=3, help="that count; one more is left out")
    words.add_argument("--encoding", action="append", help="passed to pfl-server; repeatable")
    words.add_argument("--quick", action="store_true", help="two sites, a tiny model: shows that it runs")
    words.add_argument("--out", type=Path, help="write everything as JSON")
    words.add_argument(
        "--folder", type=Path, help="where states are kept meanwhile; a disk, for honest fsync"
    )
    said = words.parse_args()
    if said.quick:
        said.sites, said.rounds = 2, 2
    return said


def measure(kind: Kind, said: argparse.Namespace) -> Iterator[Found]:
    """The round by hand and ours, with each encoding, on fresh lines of one kind."""
    numbers = 5_000 if said.quick else RESNET18
    bytes_a_second = kind.rate * 1e6 / 8
    plain = Workload(said.sites, numbers, rounds=said.rounds, host=ADDRESS, line=bytes_a_second)
    least = 2 * plain.model_bytes / bytes_a_second + kind.round_trip
    with Lines(kind, said.sites) as lines:
        probed = lines.probe()
        console.log(f"lines of {kind.rate} Mbit/s: plain TCP found {probed}")
        for who, encoding, workload in workloads(plain, said.encoding):
            seconds, wire = play(who, workload, lines, said.folder)
            console.log(f"{who} {encoding}: {seconds:.2f} s, {wire / MIB:.1f} MiB a round")
            yield Found(who, encoding, kind.rate, seconds, wire, least, numbers_of(probed))


def workloads(plain: Workload, encodings: list[str] | None) -> Iterator[tuple[str, str, Workload]]:
    """Who plays what."""
    yield BY_HAND, "", plain
    yield OURS, "", plain
    for encoding in encodings or ():
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


def numbers_of(probed: Probed) -> tuple[float, float]:
    """As plain values."""
    return round(probed.round_trip, 4), round(probed.rate, 1)


def show(found: list[Found], facts: dict[str, object], *, quick: bool) -> None:
    """A line for each, and what it was measured on."""
    title = "quick: not a measurement" * quick
    table = Table("Mbit/s", "", "encoding", "round, s", "the line alone, s", "MiB a round", title=title)
    for one in found:
        words = (f"{one.seconds:.2f}", f"{one.least_seconds:.2f}", f"{one.wire_bytes / MIB:.1f}")
        table.add_row(str(one.rate), one.who, one.encoding or "as usual", *words)
    Console(width=120).print(table)
    Console(width=150).print(", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    sys.exit(main())
