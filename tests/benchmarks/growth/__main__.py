"""Measure how a round's cost grows: `python -m tests.benchmarks.growth [--part sites] [--out FILE]`.

The coordinator's processor seconds for a round, with more sites, with larger models, and with more registered sites of
which each round asks fifty; each fitted by a line, with what the line leaves over, and the round written by hand beside
it. `drawing` is what the coordinator alone does with a list of up to 100,000 sites. Run it on a machine that does
nothing else: it says how busy the machine was before. `--most 10000` registered sites want 12 GB of memory and 40,000
descriptors (`ulimit -Hn`); where fewer are allowed there are fewer sites, and the result says how many.

`python -m tests.benchmarks.growth --page [FILE]` writes what a kept result means for many sites as deploy/growth.md;
`--out tests/benchmarks/growth/results/DATE.json` keeps one.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pfl_server.network.port_limits import share_out
from tests.benchmarks.growth import drawing, page
from tests.benchmarks.growth.drawing import Drawn
from tests.benchmarks.growth.line import Line
from tests.benchmarks.growth.play import MIB, Cost, Plan, full_plan, play, quick_plan
from tests.benchmarks.transport import machine, network

MODULE = "tests.benchmarks.growth"
PARTS = ("sites", "sizes", "registered")
DRAWING = "drawing"
LINES_OF_A_BUSY_SITE = 2
"""Where the machine is too slow for all, some have lost a line that the coordinator still holds."""
TARGETS = {"sites": ("ms a site", 4.0), "sizes": ("ms a MiB and site", 1.7)}
console = Console(stderr=True)


def main() -> int:
    """Play what is asked for, fit, print, write."""
    said = parse()
    if said.page is not None:
        page.write(json.loads(page.find(said.page).read_text()))
        return 0
    if not said.shared_network:
        network.enter(MODULE, sys.argv[1:])
    facts = machine.describe()
    plan = quick_plan() if said.quick else full_plan(most=said.most, room=find_room(said.most))
    asked = said.part or (*PARTS, DRAWING)
    drawn = draw(said.folder, rounds=2 if said.quick else drawing.ROUNDS) if DRAWING in asked else []
    costs = {part: measure(part, plan, said.folder) for part in PARTS if part in asked}
    content: dict[str, object] = {"machine": facts, "quick": said.quick}
    content["costs"] = {part: [cost.to_json() for cost in found] for part, found in costs.items()}
    content["lines"] = fit(costs)
    content["drawn"] = [one.to_json() for one in drawn]
    show(costs, content)
    if said.out:
        said.out.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    """The command's words."""
    words = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    words.add_argument("--part", action="append", choices=(*PARTS, DRAWING), help="only this one; repeatable")
    words.add_argument("--most", type=int, default=1_000, help="registered sites at most; 1,000")
    words.add_argument("--quick", action="store_true", help="a few tiny sites: shows that it runs")
    words.add_argument("--out", type=Path, help="write everything as JSON")
    words.add_argument(
        "--folder", type=Path, help="where states are kept meanwhile; a disk, for honest fsync"
    )
    words.add_argument(
        "--page",
        nargs="?",
        const="",
        metavar="FILE",
        help="write deploy/growth.md from a kept result; the newest if none is named",
    )
    words.add_argument("--shared-network", action="store_true", help="do not make a network namespace")
    return words.parse_args()


def find_room(sites: int) -> int:
    """How many sites a coordinator of this machine can have here: each line takes a descriptor, and not everybody may
    have more of them than the system gives.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return share_out(most, sites).sites // LINES_OF_A_BUSY_SITE


def measure(part: str, plan: Plan, folder: Path | None) -> list[Cost]:
    """All federations of one part."""
    workloads = {"sites": plan.many_sites, "sizes": plan.large_models, "registered": plan.registered}[part]
    found = []
    for workload in workloads:
        console.log(f"playing {workload}")
        with tempfile.TemporaryDirectory(prefix="pfl-growth-", dir=folder) as home:
            found.append(play(workload, Path(home), by_hand=part != "registered"))
        console.log(f"{1000 * found[-1].cpu_seconds:.1f} ms of the coordinator a round")
    return found


def draw(folder: Path | None, *, rounds: int) -> list[Drawn]:
    """The coordinator's own steps of a round, among more and more registered sites that are not there."""
    with tempfile.TemporaryDirectory(prefix="pfl-growth-", dir=folder) as home:
        return list(drawing.draw_all(Path(home), rounds=rounds))


def fit(costs: dict[str, list[Cost]]) -> dict[str, dict[str, object]]:
    """A line for each part with more than one point; costs in milliseconds."""
    lines: dict[str, dict[str, object]] = {}
    for part in set(costs) & set(TARGETS):
        ours = Line.through([(size_of(part, cost), 1000 * cost.cpu_seconds) for cost in costs[part]])
        hand = Line.through([(size_of(part, cost), 1000 * cost.by_hand_cpu_seconds) for cost in costs[part]])
        unit, target = TARGETS[part]
        met = ours.slope <= target
        lines[part] = {"unit": unit, "ours": ours.to_json(), "by_hand": hand.to_json()}
        lines[part] |= {"target": target, "met": met}
    return lines


def size_of(part: str, cost: Cost) -> float:
    """What the cost is divided by: sites, or MiB times sites."""
    return cost.sites if part == "sites" else cost.sites * cost.model_bytes / MIB


def show(costs: dict[str, list[Cost]], content: dict[str, object]) -> None:
    """The points, the lines, and what they were measured on."""
    table = Table(
        "", "sites", "registered", "model", "round, s", "coordinator, ms", "by hand, ms", "resident, MB"
    )
    for part, found in costs.items():
        for cost in found:
            table.add_row(part, *row_of(cost))
    out = Console(width=120)
    out.print(table)
    for part, line in content["lines"].items():
        out.print(f"{part}: {say(line['ours'], line['unit'])} (target {line['target']})")
        out.print(f"  by hand: {say(line['by_hand'], line['unit'])}")
    for one in content["drawn"]:
        words = (
            f"{1000 * one['cpu_seconds']:.2f} ms, {one['journal_bytes'] / 1000:.1f} kB of the journal a round"
        )
        out.print(f"drawing {drawing.COHORT} of {one['registered']:,}: {words}")
    Console(width=150).print(", ".join(f"{name} {value}" for name, value in content["machine"].items()))


def row_of(cost: Cost) -> Sequence[str]:
    """A line of the table."""
    hand = "" if cost.by_hand_cpu_seconds is None else f"{1000 * cost.by_hand_cpu_seconds:.1f}"
    return (
        str(cost.sites),
        str(cost.registered),
        f"{cost.model_bytes / MIB:.3g} MiB",
        f"{cost.round_seconds:.3f}",
        f"{1000 * cost.cpu_seconds:.1f}",
        hand,
        f"{cost.resident_bytes / 1e6:.0f}",
    )


def say(line: dict[str, object], unit: str) -> str:
    """A fitted line in words."""
    left = ", ".join(f"{100 * part:+.0f} %" for part in line["residuals"])
    return f"{line['slope']:.2f} {unit}, {line['fixed']:.1f} ms a round; points above the line by {left}"


if __name__ == "__main__":
    sys.exit(main())
