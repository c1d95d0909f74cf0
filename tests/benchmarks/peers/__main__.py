"""Measure the no-op workload on Flower and NVFlare, each in an environment of its own.

Run from the top of the repository: `python -m tests.benchmarks.peers --out FILE`.
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
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.benchmarks.peers import corner, environments, report
from tests.benchmarks.peers.noop_model import shapes_of
from tests.benchmarks.peers.workload import CASES, FEWEST_ROUNDS, PEERS, Case, Order

INSIDE = "tests.benchmarks.peers.inside"


def main() -> int:
    """Measure what was asked for, write the file after every case, print the table."""
    asked = _read_words()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=150)
    found = report.begin(asked.remark)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for peer in asked.peer or PEERS:
        try:
            environment = environments.prepare(peer, asked.envs.resolve())
        except environments.NotInstalled as why:
            sys.stderr.write(f"{why}\n")
            found["failed"][f"{peer} all"] = str(why)
            _write(found, asked.out)
            continue
        for case in asked.case or map(Case.read, CASES):
            console.print(f"{peer} {environments.version_of(peer)}: {case} …")
            _measure(found, Order(peer, case, asked.rounds, environment, Path()), asked.keep)
            _write(found, asked.out)
    console.print(report.tabulate(found))
    return 1 if found["failed"] else 0


def _write(found: report.Report, out: Path) -> None:
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _read_words() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    words.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    words.add_argument("--peer", action="append", choices=PEERS, help="only this one; may be repeated")
    words.add_argument(
        "--case", action="append", type=_read_case, help=f"such as {', '.join(CASES)}; repeatable"
    )
    words.add_argument("--rounds", type=_read_rounds, default=6, help="with the first, which is left out")
    words.add_argument(
        "--envs", type=Path, default=environments.find_cache(), help="where the peers are installed"
    )
    words.add_argument("--remark", default="", help="stands in the file, such as: busy machine")
    words.add_argument("--keep", type=Path, help="keep each peer's logs below this folder")
    return words.parse_args()


def _read_case(word: str) -> Case:
    try:
        return Case.read(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _read_rounds(word: str) -> int:
    if not word.isdecimal() or int(word) < FEWEST_ROUNDS:
        raise argparse.ArgumentTypeError(f"{word!r} rounds; at least {FEWEST_ROUNDS} say something")
    return int(word)


def _measure(found: report.Report, order: Order, keep: Path | None) -> None:
    load = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="pfl-peers-"))
    try:
        result = corner.run(INSIDE, replace(order, folder=folder))
        found["results"].append({**_describe(order, load), **result})
    except (subprocess.SubprocessError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        found["failed"][f"{order.peer} {order.case}"] = str(error).partition("\n")[0]
    finally:
        if keep and (folder / "logs").is_dir():
            shutil.copytree(folder / "logs", keep / f"{order.peer}-{order.case}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # an ending process may still write


def _describe(order: Order, load: float) -> report.Subject:
    return {
        "peer": order.peer,
        "version": environments.version_of(order.peer),
        "case": str(order.case),
        "sites": order.case.sites,
        "size": order.case.size,
        "arrays": len(shapes_of(order.case.size)),
        "model_bytes": order.case.model_bytes,
        "rounds": order.rounds,
        "load_before": round(load, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
