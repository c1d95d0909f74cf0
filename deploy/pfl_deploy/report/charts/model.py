"""The content of a chart, independent of drawing: the page draws it as SVG, the files beside it as PNG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from pfl_deploy.report import formatting

T = TypeVar("T")
Kind: TypeAlias = str
"""Whose a mark is; the page's style sheet gives it its colour: run, local, fedavg, other1 … other4, site."""


@dataclass(frozen=True)
class Scale:
    """One axis of a chart: its range and its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    words: Callable[[float], str] = field(default="{:g}".format, compare=False)
    title: str = ""

    def share(self, value: float) -> float:
        """Where a value lies between both ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Line:
    """One curve; a band around it shows a spread."""

    name: str
    kind: Kind
    points: Mapping[float, float]
    band: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    style: Literal["full", "dashed", "thin"] = "full"
    end: str = ""
    """What stands at its end; a thin line has nothing there."""


@dataclass(frozen=True)
class LineChart:
    """Curves over rounds, or over bytes."""

    title: str
    lines: tuple[Line, ...]
    across: Scale
    up: Scale


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars in groups, by group and kind."""

    title: str
    groups: Mapping[str, Mapping[Kind, float]]
    along: Scale
    words: Callable[[float], str] = field(default="{:g}".format, compare=False)


@dataclass(frozen=True)
class ColumnChart:
    """Stacked columns in a row, divided by kind; `marks` are the labels below them, by position."""

    title: str
    columns: tuple[Mapping[Kind, float], ...]
    names: tuple[str, ...]
    marks: Mapping[int, str]
    up: Scale


@dataclass(frozen=True)
class MatrixChart:
    """Numbers by row and column, each in its cell, which is the darker the larger its share of its row."""

    title: str
    names: tuple[str, ...]
    """Of rows and columns."""
    cells: tuple[tuple[int, ...], ...]
    down: str
    across: str


Chart: TypeAlias = LineChart | BarChart | ColumnChart


def percent_scale(title: str = "") -> Scale:
    """Shares as percent, always from 0 to 100: a cut axis makes small differences look large."""
    return Scale(0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), lambda value: f"{100 * value:.0f}", title)


def rounds_scale(rounds: int) -> Scale:
    """The number of rounds trained before."""
    step = max(1, round(rounds / 6 / 5) * 5) if rounds > 10 else max(1, rounds // 5)
    ticks = tuple(float(number) for number in range(0, rounds + 1, step))
    return Scale(0.0, float(max(rounds, 1)), ticks, "{:.0f}".format, "rounds")


def scale_to(
    values: Iterable[float], words: Callable[[float], str] = "{:g}".format, title: str = ""
) -> Scale:
    """From zero, or below, to a round number above all values."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min(0.0, *known, 0.0), max(0.0, *known, 0.0)
    if low == high:
        high = low + 1.0
    step = _round_up((high - low) / 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(step * place for place in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks, words, title)


def scale_around(values: Iterable[float]) -> Scale:
    """From a round number below all values to one above: for lines whose distance from each other says something."""
    known = [value for value in values if math.isfinite(value)]
    if not known or min(known) == max(known):
        return scale_to(known)
    step = _round_up((max(known) - min(known)) / 4)
    first, last = math.floor(min(known) / step + 1e-9), math.ceil(max(known) / step - 1e-9)
    ticks = tuple(step * place for place in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def sizes_scale(values: Iterable[float], title: str = "") -> Scale:
    """Bytes."""
    return scale_to(values, formatting.short_size, title)


def _round_up(step: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= step * (1 - 1e-9))


def thin(values: Sequence[T], most: int = 400) -> list[T]:
    """At most `most` of them, evenly chosen; the first and the last are among them."""
    if len(values) <= most:
        return list(values)
    return [
        values[place] for place in sorted({round(n * (len(values) - 1) / (most - 1)) for n in range(most)})
    ]
