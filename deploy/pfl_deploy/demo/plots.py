"""Small drawings in SVG, coloured by the page's own style sheet: curves, grouped bars, one divided bar, columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Mapping[int, float]


@dataclass(frozen=True)
class Frame:
    """A drawing's size and the room around what is drawn."""

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


def curves(label: str, series: Mapping[str, Points], rounds: int) -> str:
    """Accuracy over rounds, one line a method; each line's last value stands at its end."""
    frame = Frame(460, 250)
    marks = _percent_grid(frame)
    step = max(1, round(rounds / 6 / 5) * 5) if rounds > 10 else max(1, rounds // 5)
    for number in range(0, rounds + 1, step):
        marks.append(_text(frame.across(number / rounds), frame.height - 8, str(number), "axis middle"))
    for name, points in series.items():
        path = " ".join(f"{frame.across(n / rounds):.1f},{frame.up(v):.1f}" for n, v in points.items())
        marks.append(f'<polyline class="line {name}" points="{path}"/>')
    ends = {name: frame.up(points[max(points)]) for name, points in series.items()}
    for name, place in _spread(ends, least=13).items():
        points = series[name]
        value = points[max(points)]
        marks.append(f'<circle class="dot {name}" cx="{frame.across(1):.1f}" cy="{ends[name]:.1f}" r="3"/>')
        marks.append(_text(frame.across(1) + 7, place + 4, f"{100 * value:.1f}", f"end {name}"))
    return frame.drawing(label, marks)


def grouped_bars(label: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """One group of bars a site, one bar a method, each with its value on top."""
    frame = Frame(960, 300, right=8, top=22, bottom=30)
    marks = _percent_grid(frame)
    for place, (group, bars) in enumerate(groups.items()):
        wide = 0.76 / len(groups) / len(bars)
        for number, (name, value) in enumerate(bars.items()):
            left = frame.across((place + 0.12) / len(groups) + number * wide)
            width = frame.across(wide * 0.92) - frame.across(0)
            marks.append(_bar(left, frame.up(value), width, frame.up(0) - frame.up(value), name))
            best = " best" if value == max(bars.values()) else ""
            words = f"{100 * value:.1f}"
            marks.append(_text(left + width / 2, frame.up(value) - 5, words, f"value middle {name}{best}"))
        centre = frame.across((place + 0.5) / len(groups))
        marks.append(_text(centre, frame.height - 8, group, "group middle"))
    return frame.drawing(label, marks)


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


def columns(label: str, values: Sequence[float], unit: str) -> str:
    """One thin column a round."""
    frame = Frame(960, 140, right=8, top=14, bottom=24)
    most = max(values, default=0.0) or 1.0
    marks = []
    for share in (0.0, 0.5, 1.0):
        marks.append(_line(frame, share))
        marks.append(_text(frame.left - 6, frame.up(share) + 4, f"{share * most:.1f}", "axis right"))
    wide = 1 / max(len(values), 1)
    for number, value in enumerate(values):
        left = frame.across(number * wide) + 1
        width = max(frame.across(wide) - frame.across(0) - 2, 1)
        tall = frame.up(0) - frame.up(value / most)
        title = f"<title>round {number + 1}: {value:.2f} {unit}</title>"
        marks.append(f"<g>{title}{_bar(left, frame.up(value / most), width, tall, 'time')}</g>")
        if number == 0 or (number + 1) % 5 == 0:
            marks.append(_text(left + width / 2, frame.height - 7, str(number + 1), "axis middle"))
    return frame.drawing(label, marks)


def _percent_grid(frame: Frame) -> list[str]:
    marks = []
    for percent in (0, 20, 40, 60, 80, 100):
        marks.append(_line(frame, percent / 100))
        marks.append(_text(frame.left - 6, frame.up(percent / 100) + 4, str(percent), "axis right"))
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
        f'height="{max(height, 0.5):.1f}" rx="2"/>'
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
