"""Rounds as they were found on slow lines, ours, by hand and of other systems: as a table and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from tests.benchmarks.slow_links.lines import Kind, Probed

MIB = 1 << 20
BY_HAND, OURS = "by hand", "ours"


@dataclass(frozen=True)
class Found:
    """A round on one kind of line: medians of those that count."""

    who: str
    rate: int
    """Mbit/s of the line, each way."""
    seconds: float
    wire_bytes: float
    """What all lines carried both ways, headers included."""
    least_seconds: float
    """The model there and back by one site's line, as float32, and one round trip."""
    encoding: str = ""


@dataclass(frozen=True)
class Failed:
    """What could not be measured on one kind of line."""

    who: str
    rate: int
    why: str


def least_seconds(model_bytes: int, kind: Kind) -> float:
    """What no program can do better with plain float32: all sites' lines are full at once, first down and then up."""
    return 2 * model_bytes * 8 / (kind.rate * 1e6) + kind.round_trip


def tabulate(found: Sequence[Found], *, quick: bool) -> Table:
    """A line for each; beside it how much longer than ours as it usually is, on the same lines."""
    headings = ("Mbit/s", "", "encoding", "round, s", "of ours", "the line alone, s", "MiB a round")
    table = Table(*headings, title="quick: not a measurement" * quick)
    for one in found:
        usual = [
            each.seconds for each in found if (each.who, each.rate, each.encoding) == (OURS, one.rate, "")
        ]
        table.add_row(
            str(one.rate),
            one.who,
            one.encoding or "float32",
            f"{one.seconds:.2f}",
            f"{one.seconds / usual[0]:.2f}×" if usual else "",
            f"{one.least_seconds:.2f}",
            f"{one.wire_bytes / MIB:.1f}",
        )
    return table


def to_json(
    found: Sequence[Found], failed: Sequence[Failed], probed: dict[int, Probed]
) -> dict[str, list[dict[str, object]]]:
    """Everything as plain values."""
    return {
        "lines": [{"rate": rate, **asdict(line)} for rate, line in probed.items()],
        "rows": [asdict(one) for one in found],
        "failed": [asdict(one) for one in failed],
    }
