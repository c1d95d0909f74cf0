"""Measure local training: `python -m tests.benchmarks.training [METHOD ...] [--network cnn] [--out FILE]`.

One local epoch of each method by the product, and by a plain loop of the same mathematics (`by_hand.py`), in turns on
one thread, each in a process of its own: ours as a site's trainer. Told are processor seconds, so that a busy machine
disturbs less, and the ratio of their medians. Run it on a machine that does nothing else: it says how busy it was
before.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from tests.benchmarks.training.by_hand import BY_HAND
from tests.benchmarks.training.measuring import LIMIT, NETWORKS, Network, Row, measure
from tests.benchmarks.transport import machine

MODULE = "tests.benchmarks.training"


def main() -> int:
    """Measure what is asked for, print the table, write the file."""
    said = parse()
    torch.set_num_threads(1)
    facts, console = machine.describe(), Console(stderr=True)
    rows: list[Row] = []
    for name in said.network or NETWORKS:
        network = NETWORKS[name]
        if said.quick:
            network = Network(network.name, 32, 64)
        for method in said.methods or sorted(BY_HAND):
            rows.append(measure(method, network, 1 if said.quick else said.turns))
            console.log(f"{method}, {name}: {rows[-1].ratio:.3f}")
    show(rows, facts, quick=said.quick)
    if said.out:
        content = {"machine": facts, "quick": said.quick, "rows": [row.to_json() for row in rows]}
        said.out.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    """The command's words."""
    words = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    words.add_argument("methods", nargs="*", metavar="METHOD", help="only these; otherwise all of them")
    words.add_argument("--network", action="append", choices=NETWORKS, help="only this one; repeatable")
    words.add_argument("--turns", type=int, default=5, help="of each way")
    words.add_argument("--quick", action="store_true", help="a few samples: shows that it runs, not how fast")
    words.add_argument("--out", type=Path, help="write everything as JSON")
    said = words.parse_args()
    if unknown := set(said.methods) - set(BY_HAND):
        words.error(f"there is no method {', '.join(sorted(unknown))}: expected {', '.join(sorted(BY_HAND))}")
    return said


def show(rows: list[Row], facts: dict[str, object], *, quick: bool) -> None:
    """A line for each method, and what it was measured on."""
    table = Table("method", "network", "ours, s", "by hand, s", "ratio", f"≤ {LIMIT}")
    for row in rows:
        seconds = (f"{median(each):.3f}" for each in (row.ours, row.by_hand))
        met = "" if quick else "yes" if row.ratio <= LIMIT else "NO"
        table.add_row(row.method, row.network, *seconds, f"{row.ratio:.3f}", met)
    Console(width=120).print(table)
    Console(width=150).print(", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    sys.exit(main())
