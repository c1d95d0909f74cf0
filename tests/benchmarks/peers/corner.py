"""Runs one measurement as the first process of a corner of the machine that is all its own, and brings its result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from tests.benchmarks.peers.namespace import enclosed
from tests.benchmarks.peers.report import Result
from tests.benchmarks.peers.workload import Order
from tests.house.skeleton import TOP

LONGEST_MEASUREMENT = 3600.0


def run(module: str, order: Order, more: Mapping[str, object] | None = None) -> Result:
    """Have a module carry out an order; what there is `more` stands in the order's file too.

    The child is ended by its id if it takes too long; the kernel then ends all it has started.
    """
    told = {
        "peer": order.peer,
        "case": str(order.case),
        "rounds": order.rounds,
        "environment": str(order.environment),
        "host": order.host,
    }
    file = order.folder / "order.json"
    file.write_text(json.dumps({**told, **(more or {})}), encoding="utf-8")
    done = subprocess.run(
        enclosed([sys.executable, "-m", module, str(file)]),
        cwd=TOP,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LONGEST_MEASUREMENT,
        check=False,
    )
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr)
    result: Result = json.loads((order.folder / "result.json").read_text(encoding="utf-8"))
    return result
