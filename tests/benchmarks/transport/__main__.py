"""Measure what rounds cost beside learning: `python -m tests.benchmarks.transport [B1 B2 ...] [--quick] [--out FILE]`.

Real programs on loopback against a round written by hand, in one session; the table shows ratios. Run it on a machine
that does nothing else: it says how busy the machine was before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.transport import machine, network
from tests.benchmarks.transport.laboratory import Laboratory, full_plan, quick_plan
from tests.benchmarks.transport.ours import STACKS, BenchmarkFailed
from tests.benchmarks.transport.rows import LONG, ROWS, Row
from tests.deploy.support.processes import PROGRAMS

MODULE = "tests.benchmarks.transport"
console = Console(stderr=True)


def main() -> int:
    """Play what the rows ask for, print the table, write the file."""
    said = parse()
    own = False if said.shared_network else network.enter(MODULE, sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if said.stacks:
        os.environ[STACKS] = str(said.stacks.resolve())
    facts = machine.describe()
    rows: list[Row] = []
    failed: dict[str, str] = {}
    with place(said.folder, keep=said.keep) as folder:
        plan = quick_plan() if said.quick else full_plan(("process",) if knows("--durability") else ())
        laboratory = Laboratory(folder, plan, own, tell=console.log, keep=said.keep)
        for name in said.rows:
            measure(name, laboratory, rows, failed)
            if said.out:
                write(said.out, rows, facts, quick=said.quick, failed=failed)
    show(rows, facts, quick=said.quick)
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    """The command's words."""
    words = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    wanted = [name for name in ROWS if name not in LONG]
    words.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)}; all but {', '.join(LONG)}")
    words.add_argument("--quick", action="store_true", help="tiny models: shows that it runs, not how fast")
    words.add_argument("--out", type=Path, help="write everything as JSON")
    words.add_argument(
        "--folder", type=Path, help="where states are kept meanwhile; a disk, for honest fsync"
    )
    words.add_argument("--keep", action="store_true", help="keep logs and states")
    words.add_argument("--stacks", type=Path, help="sample the programs' stacks into this folder (slower)")
    words.add_argument("--shared-network", action="store_true", help="do not make a network namespace")
    said = words.parse_args()
    if unknown := set(said.rows) - set(ROWS):
        words.error(f"there is no row {', '.join(sorted(unknown))}: expected {', '.join(ROWS)}")
    said.rows = said.rows or wanted
    return said


@contextmanager
def place(parent: Path | None, *, keep: bool) -> Iterator[Path]:
    """A folder for all states and logs; removed at the end, whatever the end is."""
    folder = Path(tempfile.mkdtemp(prefix="pfl-bench-", dir=parent))
    try:
        yield folder
    finally:
        if keep:
            console.log(f"states and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def knows(flag: str) -> bool:
    """Whether `pfl-server` has a flag."""
    command = [sys.executable, "-c", PROGRAMS["pfl-server"], "--help"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return flag in asked.stdout


def measure(name: str, laboratory: Laboratory, rows: list[Row], failed: dict[str, str]) -> None:
    """Add a row's lines; one that cannot be measured says so and costs the others nothing."""
    try:
        rows += ROWS[name](laboratory)
    except BenchmarkFailed as why:
        console.log(f"{name}: {why}")
        failed[name] = str(why)


def show(rows: list[Row], facts: dict[str, object], *, quick: bool) -> None:
    """The table, and what it was measured on."""
    table = Table(
        "", "what", "measured", "against", "ratio", "target", "met", title="quick: not a measurement" * quick
    )
    for row in rows:
        measured, against = f"{row.measured:.4g} {row.unit}", f"{row.reference:.4g}" if row.reference else ""
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
        met = "" if quick else "yes" if row.met else "NO"
        table.add_row(row.budget, row.workload, measured, against, ratio, row.target, met)
    Console(width=150).print(table)
    Console(width=150).print(", ".join(f"{name} {value}" for name, value in facts.items()))


def write(
    out: Path, rows: list[Row], facts: dict[str, object], *, quick: bool, failed: dict[str, str]
) -> None:
    """Everything that was measured, for later comparison."""
    lines = [row.to_json() for row in rows]
    content = {"machine": facts, "quick": quick, "rows": lines, "failed": failed}
    out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
