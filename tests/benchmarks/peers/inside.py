"""One measurement, run as the first process of a corner of the machine that is all its own.

Started by the command beside it as `python -m tests.benchmarks.peers.inside ORDER`; writes `result.json` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.peers import flower, nvflare
from tests.benchmarks.peers.gauges import COORDINATOR, SITE, Gauges, Memory, Moment
from tests.benchmarks.peers.namespace import raise_loopback
from tests.benchmarks.peers.report import WORTH_NAMING, Result, summarise
from tests.benchmarks.peers.stage import PeerFailed, Stage, nothing_before
from tests.benchmarks.peers.workload import Case, Order

PUT_UP: dict[str, tuple[Callable[[Stage, Order], None], dict[str, str]]] = {
    "flower": (flower.put_up, flower.SETTINGS),
    "nvflare": (nvflare.put_up, nvflare.SETTINGS),
}


def main(words: list[str]) -> None:
    """Carry out the order in the given file."""
    order = read_order(Path(words[0]))
    raise_loopback()
    carry_out(order)


def read_order(file: Path) -> Order:
    """What is to be measured, in the folder where the order lies."""
    told = json.loads(file.read_text(encoding="utf-8"))
    return Order(
        peer=told["peer"],
        case=Case.read(told["case"]),
        rounds=told["rounds"],
        environment=Path(told["environment"]),
        folder=file.parent,
        host=told["host"],
    )


def carry_out(
    order: Order, gauges: Gauges | None = None, before: Callable[[int], list[str]] = nothing_before
) -> None:
    """Measure and write the result; end this process with the peer's last words where it fails."""
    try:
        result = _measure(order, gauges or Gauges(), before)
    except PeerFailed as error:
        sys.exit(str(error))
    (order.folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _measure(order: Order, gauges: Gauges, before: Callable[[int], list[str]]) -> Result:
    put_up, settings = PUT_UP[order.peer]
    with Stage(order.folder, order.environment, settings, gauges, before) as stage:
        put_up(stage, order)
        moments = stage.measure(rounds=order.rounds, sites=order.case.sites)
        return _conclude(order, moments, stage.gauges.memory)


def _conclude(order: Order, moments: list[Moment], memory: Memory) -> Result:
    """The first round is left out: connections are made and code is loaded in it."""
    counted = moments[1:]
    rounds = len(counted) - 1
    spent = {
        role: round((counted[-1].cpu_seconds.get(role, 0) - counted[0].cpu_seconds.get(role, 0)) / rounds, 3)
        for role in (COORDINATOR, SITE)
    }
    largest = sorted(memory.each.items(), key=lambda line: -line[1])
    return {
        "round_seconds": summarise([after.at - before.at for before, after in pairwise(counted)]),
        "wire_bytes": summarise(
            [after.wire_bytes - before.wire_bytes for before, after in pairwise(counted)]
        ),
        "cpu_seconds": {"coordinator": spent[COORDINATOR], "sites": spent[SITE]},
        "coordinator_memory": {
            "together": memory.together,
            "each": {name: peak for name, peak in largest if peak >= WORTH_NAMING},
            "threads": memory.threads,
        },
    }


if __name__ == "__main__":
    main(sys.argv[1:])
