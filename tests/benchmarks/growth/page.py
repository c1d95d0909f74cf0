"""Reckons what many sites would need from measured coefficients, as the page deploy/growth.md."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.growth.line import Line
from tests.benchmarks.growth.play import MIB
from tests.house.skeleton import TOP

PAGE = TOP / "deploy" / "growth.md"
KEPT = Path(__file__).parent / "results"
SITES = 10_000
MODELS = (0.1, 1, 45, 200)
"""MiB."""
CORES = (2, 8, 32)
LINES = (1, 10)
"""Gbit/s."""
WIDTH = 118

Result = dict[str, Any]  # a kept result file
Row = dict[str, Any]  # one federation in it


def find(named: str = "", kept: Path = KEPT) -> Path:
    """The result that was named, or the newest kept one: their names are dates."""
    newest = Path(named) if named else max(kept.glob("*.json"), default=None)
    if newest is None:
        raise SystemExit(f"there is no result in {kept}: measure with --out {kept.name}/DATE.json there")
    return newest


def write(result: Result, page: Path = PAGE) -> None:
    """Write the page; a quick result says nothing of speed and makes none."""
    if result["quick"]:
        raise SystemExit("a quick result says nothing: run without --quick, with all parts")
    if missing := {"sites", "sizes", "registered"} - set(result["costs"]):
        raise SystemExit(f"the result lacks {', '.join(sorted(missing))}: run all parts")
    if not result["drawn"]:
        raise SystemExit("the result lacks drawing: run all parts")
    if len({cost["registered"] for cost in result["costs"]["registered"]}) < 2:
        raise SystemExit("the result has one number of registered sites: run with --most 1000 or more")
    page.write_text(make(result))


def make(result: Result) -> str:
    """The page's text."""
    parts = (_begin(result), _registered(result["costs"]["registered"], result["drawn"]), _active(result))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _begin(result: Result) -> list[str]:
    machine = result["machine"]
    return [
        "# How a round's cost grows",
        "",
        *_prose(
            "Written by `python -m tests.benchmarks.growth --page` from the newest file in "
            "`tests/benchmarks/growth/results`, not by hand. Measured on "
            f"{machine['cores']} cores of {machine['processor']}, {machine['date']}, load before "
            f"{machine['load_before']}: the coordinator's processor time for a round, with sites that are real daemons "
            "and train nothing, and lines fitted to it."
        ),
        "",
        "| the coordinator's processor | ours | by hand | target | points above the line |",
        "|---|---|---|---|---|",
        *map(_fitted, result["lines"].values()),
    ]


def _fitted(line: Row) -> str:
    ours, hand = line["ours"], line["by_hand"]
    left = ", ".join(f"{100 * part:+.0f} %" for part in ours["residuals"])
    return (
        f"| {line['unit']} (beside {ours['fixed']:.0f} ms a round) | {ours['slope']:.2f} | {hand['slope']:.2f} "
        f"| ≤ {line['target']} | {left} |"
    )


def _registered(costs: Sequence[Row], drawn: Sequence[Row]) -> list[str]:
    """The rows beside the first of them that does not ask all it has."""
    first = next((cost for cost in costs if cost["sites"] < cost["registered"]), costs[0])
    return [
        "## Sites that are registered and not asked",
        "",
        *_prose(
            "A round draws from their list, which is most of what it does with it: "
            f"{', '.join(map(_drawn, drawn))}. Beside the rounds each site asks for work again every two minutes, and "
            "its line is kept by pings; the table has both. A site that is asked again within a second gets its task "
            "with the receipt of the last one, which is one call less: where all are asked in each round that is "
            f"everybody, so the comparison is with {first['registered']:,} registered."
        ),
        "",
        _head(
            *("registered", "asked", "a round", "coordinator's processor", "its memory"),
            f"processor beside {first['registered']:,}",
        ),
        "|---|---|---|---|---|---|",
        *(
            f"| {cost['registered']:,} | {cost['sites']} | {cost['round_seconds']:.2f} s "
            f"| {1000 * cost['cpu_seconds']:.0f} ms | {cost['resident_bytes'] / 1e6:.0f} MB "
            f"| {cost['cpu_seconds'] / first['cpu_seconds']:.2f}× |"
            for cost in costs
        ),
    ]


def _drawn(one: Row) -> str:
    return f"{1000 * one['cpu_seconds']:.1f} ms of {one['registered']:,}"


def _active(result: Result) -> list[str]:
    lines, registered = result["lines"], result["costs"]["registered"]
    site, mib = lines["sites"]["ours"]["slope"], lines["sizes"]["ours"]["slope"]
    memory = Line.through([(cost["registered"], cost["resident_bytes"] / 1e6) for cost in registered])
    return [
        f"## {SITES:,} sites in each round",
        "",
        *_prose(
            f"A round in which {SITES:,} sites train costs the coordinator {SITES:,} × ({site:.2f} ms + {mib:.2f} ms × "
            "MiB of the model) of processor. It is one process: SQLite, the event loop and most of gRPC take one core, "
            "sums, seals and checks some more. What more cores would do is not measured; the table divides by cores as "
            "if all of it were shared: the least it can be. The line carries the model twice for each site; the disk "
            "holds two rounds' updates, those of the last committed one and those that come."
        ),
        "",
        _head(
            "model",
            "processor",
            *(f"{cores} cores" for cores in CORES),
            *(f"{rate} Gbit/s" for rate in LINES),
            "disk",
        ),
        "|---" * (3 + len(CORES) + len(LINES)) + "|",
        *(_reckon(size, (site + mib * size) * SITES / 1000) for size in MODELS),
        "",
        *_prose(
            f"Memory: {memory.slope:.2f} MB for each line that is open, {memory.at(SITES) / 1000:.1f} GB with "
            f"{SITES:,}; beside that what four models and the float64 sums take. Descriptors: one for each line, "
            "beside those of files and of the other ports (`LimitNOFILE`)."
        ),
    ]


def _prose(words: str) -> list[str]:
    return textwrap.wrap(words, WIDTH, break_long_words=False, break_on_hyphens=False)


def _head(*words: str) -> str:
    return f"| {' | '.join(words)} |"


def _reckon(size: float, seconds: float) -> str:
    moved = 2 * SITES * size * MIB
    shared = (f"{seconds / cores:,.0f} s" for cores in CORES)
    carried = (f"{moved * 8 / (rate * 1e9):,.0f} s" for rate in LINES)
    return _head(f"{size:g} MiB", f"{seconds:,.0f} s", *shared, *carried, f"{moved / 1e9:,.0f} GB")
