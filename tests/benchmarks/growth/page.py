"""Reckons what many sites would need from measured coefficients, as the page deploy/growth.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.growth.play import MIB
from tests.house.skeleton import TOP

PAGE = TOP / "deploy" / "growth.md"
SITES = 10_000
MODELS = (0.1, 1, 45, 200)
"""MiB."""
CORES = (2, 8, 32)

Result = dict[str, Any]  # a kept result file


def write(result: Result, page: Path = PAGE) -> None:
    """Write the page; a quick result says nothing of speed and makes none."""
    if result["quick"]:
        raise SystemExit("a quick result says nothing: run without --quick, with all parts")
    if missing := {"sites", "sizes", "registered"} - set(result["costs"]):
        raise SystemExit(f"the result lacks {', '.join(sorted(missing))}: run all parts")
    page.write_text(make(result))


def make(result: Result) -> str:
    """The page's text."""
    machine, lines = result["machine"], result["lines"]
    site, mib = lines["sites"]["ours"]["slope"], lines["sizes"]["ours"]["slope"]
    return "\n".join(
        [
            "# How a round's cost grows",
            "",
            "Written by `python -m tests.benchmarks.growth --page FILE` from a kept result; not by hand. Measured on",
            f"{machine['cores']} cores of {machine['processor']}, {machine['date']}, load before "
            f"{machine['load_before']}.",
            "",
            *_coefficients(result),
            "",
            "## What the registered sites cost that a round does not ask",
            "",
            *_registered(result),
            "",
            f"## {SITES:,} sites in each round",
            "",
            f"A round in which {SITES:,} sites train costs the coordinator {SITES:,} × ({site:.2f} ms + {mib:.2f} ms ×",
            "MiB of the model) of processor, and the line twice the model for each site. It is one process: SQLite,",
            "the event loop and most of gRPC take one core, sums, seals and checks some more. What more cores would do",
            "is not measured; the table divides by cores as if all of it were shared: the least it can be.",
            "",
            *_reckoned(site, mib),
            "",
        ]
    )


def _coefficients(result: Result) -> list[str]:
    rows = [
        "| the coordinator's processor | ours | by hand | target | points above the line |",
        "|---|---|---|---|---|",
    ]
    for line in result["lines"].values():
        ours, hand = line["ours"], line["by_hand"]
        left = ", ".join(f"{100 * part:+.0f} %" for part in ours["residuals"])
        rows.append(
            f"| {line['unit']} (beside {ours['fixed']:.0f} ms a round) | {ours['slope']:.2f} | {hand['slope']:.2f} "
            f"| ≤ {line['target']} | {left} |"
        )
    return rows


def _registered(result: Result) -> list[str]:
    rows = [
        "| registered | asked | a round | coordinator's processor | its memory |",
        "|---|---|---|---|---|",
    ]
    return rows + [
        f"| {cost['registered']:,} | {cost['sites']} | {cost['round_seconds']:.2f} s "
        f"| {1000 * cost['cpu_seconds']:.0f} ms | {cost['resident_bytes'] / 1e6:.0f} MB |"
        for cost in result["costs"]["registered"]
    ]


def _reckoned(site: float, mib: float) -> list[str]:
    rows = [
        "| model | processor | "
        + " | ".join(f"{cores} cores" for cores in CORES)
        + " | on the line, both ways |",
        "|---" * (len(CORES) + 3) + "|",
    ]
    for size in MODELS:
        seconds = SITES * (site + mib * size) / 1000
        moved = 2 * SITES * size * MIB / 1e9
        each = " | ".join(f"{seconds / cores:,.0f} s" for cores in CORES)
        rows.append(f"| {size:g} MiB | {seconds:,.0f} s | {each} | {moved:,.0f} GB |")
    return rows
