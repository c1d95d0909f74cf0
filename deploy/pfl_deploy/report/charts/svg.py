"""Draws charts as SVG in the colours of the page's style sheet: curves, bars, columns, and a divided bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pfl_deploy.report.charts.model import (
    BarChart,
    Chart,
    ColumnChart,
    Line,
    LineChart,
    Scale,
)

_LETTER = 7.2
"""How wide a letter of a label is taken to be."""


@dataclass(frozen=True)
class Frame:
    """A drawing's size and margins."""

    width: float
    height: float
    left: float = 34
    right: float = 44
    top: float = 12
    bottom: float = 26

    def across(self, share: float) -> float:
        """From 0..1 to a place between the left and right edge."""
        return self.left + share * (self.width - self.left - self.right)

    def up(self, share: float) -> float:
        """From 0..1 to a place between the lower and upper edge."""
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)

    def drawing(self, label: str, marks: Sequence[str]) -> str:
        """All marks as one picture with a label for those who cannot see it."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(label)}">'
            f"{''.join(marks)}</svg>"
        )


def draw(chart: Chart) -> str:
    """Any chart as SVG."""
    match chart:
        case LineChart():
            return draw_lines(chart)
        case BarChart():
            return draw_bars(chart)
        case ColumnChart():
            return draw_columns(chart)


def draw_lines(chart: LineChart) -> str:
    """Bands first, then lines, then the words at their ends, moved apart."""
    longest = max((len(line.end) for line in chart.lines), default=0)
    left = 10 + _LETTER * max((len(chart.up.words(tick)) for tick in chart.up.ticks), default=3)
    frame = Frame(460, 250, left=max(34, left), right=max(16, 14 + _LETTER * longest))
    marks = _grid(frame, chart.up)
    for tick in chart.across.ticks:
        place = frame.across(chart.across.share(tick))
        marks.append(_text(place, frame.height - 8, chart.across.words(tick), "axis middle"))
    marks += [_band(frame, chart, line) for line in chart.lines if line.band]
    marks += [_polyline(frame, chart, line) for line in chart.lines if line.points]
    named = {place: line for place, line in enumerate(chart.lines) if line.end and line.points}
    ends = {str(place): frame.up(_last(chart, line)[1]) for place, line in named.items()}
    for key, down in _spread(ends, least=13).items():
        line = named[int(key)]
        across = frame.across(_last(chart, line)[0])
        marks.append(f'<circle class="dot {line.kind}" cx="{across:.1f}" cy="{ends[key]:.1f}" r="3"/>')
        marks.append(_text(across + 7, down + 4, line.end, f"end {line.kind}"))
    return frame.drawing(chart.title, marks)


def draw_bars(chart: BarChart) -> str:
    """One group a row, its bars below each other, each with its value behind it."""
    bar, gap = 15.0, 12.0
    most = max((len(bars) for bars in chart.groups.values()), default=1)
    left = 12 + _LETTER * min(16, max((len(name) for name in chart.groups), default=4))
    height = 22 + len(chart.groups) * (most * bar + gap)
    frame = Frame(460, height, left=left, right=52, top=0, bottom=20)
    marks = []
    for tick in chart.along.ticks:
        place = frame.across(chart.along.share(tick))
        marks.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{height - 20:.1f}"/>')
        marks.append(_text(place, height - 5, chart.along.words(tick), "axis middle"))
    top = gap / 2
    for name, bars in chart.groups.items():
        middle = top + len(bars) * bar / 2 + 4.5
        short = name if len(name) <= 16 else f"{name[:15]}…"
        marks.append(
            f"<g><title>{escape(name)}</title>{_text(frame.left - 8, middle, short, 'group right')}</g>"
        )
        best = max(bars.values(), default=0.0)
        for place, (kind, value) in enumerate(bars.items()):
            end = frame.across(min(1.0, max(0.0, chart.along.share(value))))
            marks.append(_bar(frame.left, top + place * bar, max(end - frame.left, 0.5), bar - 2, kind))
            strong = " best" if value == best and len(bars) > 1 else ""
            words = chart.words(value)
            marks.append(_text(end + 5, top + place * bar + bar - 4.5, words, f"value {kind}{strong}"))
        top += most * bar + gap
    return frame.drawing(chart.title, marks)


def draw_columns(chart: ColumnChart) -> str:
    """Thin columns, their parts on top of each other."""
    left = 10 + _LETTER * max((len(chart.up.words(tick)) for tick in chart.up.ticks), default=3)
    frame = Frame(460, 200, left=max(34, left), right=8, top=14)
    marks = _grid(frame, chart.up)
    wide = 1 / max(len(chart.columns), 1)
    gap = 2 if frame.across(wide) - frame.across(0) > 4 else 0.4
    for number, parts in enumerate(chart.columns):
        place = frame.across(number * wide) + gap / 2
        width = max(frame.across(wide) - frame.across(0) - gap, 0.6)
        floor, pieces = frame.up(0), []
        for kind, value in parts.items():
            tall = frame.up(0) - frame.up(value / chart.up.high)
            floor -= tall
            if value:
                pieces.append(_bar(place, floor, width, tall, kind))
        marks.append(f"<g><title>{escape(chart.names[number])}</title>{''.join(pieces)}</g>")
        if number in chart.marks:
            marks.append(_text(place + width / 2, frame.height - 7, chart.marks[number], "axis middle"))
    return frame.drawing(chart.title, marks)


def divided_bar(label: str, parts: Sequence[tuple[str, float, str]]) -> str:
    """One bar cut into named parts by size; parts too small for their name show it when pointed at."""
    frame = Frame(960, 54, left=0, right=0, top=0, bottom=0)
    total = sum(size for _, size, _ in parts) or 1.0
    marks, at = [], 0.0
    for name, size, kind in parts:
        left, width = frame.across(at / total), frame.across(size / total)
        title = f"<title>{escape(name)}: {size:,.0f} numbers, {100 * size / total:.1f} %</title>"
        marks.append(
            f'<g>{title}<rect class="part {kind}" x="{left:.1f}" y="0" width="{max(width - 2, 1):.1f}" '
            f'height="54" rx="4"/>'
        )
        numbers = f"{size:,.0f} numbers"
        if width > 24 + 7.5 * max(len(name), len(numbers)):
            marks.append(_text(left + 12, 24, name, "inside"))
            marks.append(_text(left + 12, 42, numbers, "inside small"))
        marks.append("</g>")
        at += size
    return frame.drawing(label, marks)


def _last(chart: LineChart, line: Line) -> tuple[float, float]:
    """Where a line ends, as shares."""
    end = max(line.points)
    return chart.across.share(end), chart.up.share(line.points[end])


def _polyline(frame: Frame, chart: LineChart, line: Line) -> str:
    path = " ".join(
        f"{frame.across(chart.across.share(n)):.1f},{frame.up(chart.up.share(v)):.1f}"
        for n, v in sorted(line.points.items())
    )
    style = "" if line.style == "full" else f" {line.style}"
    return f'<polyline class="line {line.kind}{style}" points="{path}"><title>{escape(line.name)}</title></polyline>'


def _band(frame: Frame, chart: LineChart, line: Line) -> str:
    edges = sorted(line.band.items())
    round_trip = [(n, high) for n, (_, high) in edges] + [(n, low) for n, (low, _) in reversed(edges)]
    path = " ".join(
        f"{frame.across(chart.across.share(n)):.1f},{frame.up(chart.up.share(v)):.1f}" for n, v in round_trip
    )
    return f'<polygon class="band {line.kind}" points="{path}"/>'


def _grid(frame: Frame, scale: Scale) -> list[str]:
    marks = []
    for tick in scale.ticks:
        share = scale.share(tick)
        marks.append(_line(frame, share))
        marks.append(_text(frame.left - 6, frame.up(share) + 4, scale.words(tick), "axis right"))
    return marks


def _line(frame: Frame, share: float) -> str:
    height = frame.up(share)
    return (
        f'<line class="grid" x1="{frame.left:g}" x2="{frame.width - frame.right:g}" '
        f'y1="{height:.1f}" y2="{height:.1f}"/>'
    )


def _bar(left: float, top: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="bar {kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{max(height, 0.5):.1f}" rx="{min(2, width / 5):.1f}"/>'
    )


def _text(across: float, down: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{across:.1f}" y="{down:.1f}">{escape(words)}</text>'


def _spread(places: Mapping[str, float], *, least: float) -> dict[str, float]:
    """Move labels apart that would lie on each other; their order from top to bottom stays."""
    moved: dict[str, float] = {}
    floor = float("-inf")
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        floor = max(place, floor + least)
        moved[name] = floor
    # What was pushed down is shared by all, so that no label stands far from its line.
    shift = sum(moved[name] - places[name] for name in places) / max(len(places), 1)
    return {name: place - shift for name, place in moved.items()}
