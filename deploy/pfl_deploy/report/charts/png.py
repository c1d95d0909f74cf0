"""Draws the page's charts as PNG files for slides and papers; the only user of matplotlib here."""

from __future__ import annotations

from pathlib import Path
from typing import Any  # matplotlib ships no types

from pfl_common.errors import SettingError
from pfl_deploy.report.charts.model import BarChart, Chart, ColumnChart, LineChart, MatrixChart
from pfl_deploy.report.charts.select import draw_all
from pfl_deploy.report.facts import Facts
from pfl_deploy.report.page.html import KINDS

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    raise SettingError(
        "pictures need matplotlib, which is not installed",
        expected="the optional extra `reports`",
        advice="pip install 'pfl-net[reports]', or leave the PNG files out with --no-pictures",
    ) from None

SIZE, DOTS = (6.4, 3.9), 160
_NAMED, _LEVEL = 20, 5
"""Classes of a matrix that are all named, and those whose names need not be turned."""
_WIDTHS = {"full": 2.0, "dashed": 1.2, "thin": 0.7}


def draw(facts: Facts, folder: Path) -> tuple[Path, ...]:
    """One file for each chart, named as the chart."""
    made = []
    for name, chart in draw_all(facts).items():
        path = folder / f"{_file_name(name)}.png"
        save(chart, path)
        made.append(path)
    return tuple(made)


def save(chart: Chart | MatrixChart, path: Path) -> None:
    """One chart as a picture."""
    figure = Figure(figsize=SIZE, dpi=DOTS, layout="constrained")
    # Figures of our own and no global ones: nothing opens a window, nothing is left behind.
    canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()
    axes.set_title(_plain(chart.title), fontsize=11, loc="left")
    match chart:
        case LineChart():
            _draw_lines(chart, axes)
        case BarChart():
            _draw_bars(chart, axes)
        case ColumnChart():
            _draw_columns(chart, axes)
        case MatrixChart():
            _draw_matrix(chart, axes)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.print_png(path, metadata={"Software": None})  # type: ignore[no-untyped-call]


def _draw_lines(chart: LineChart, axes: Any) -> None:
    for line in chart.lines:
        places = sorted(line.points)
        colour, label = KINDS[line.kind][0], _plain(line.name)
        dashes = "--" if line.style == "dashed" else "-"
        quiet = line.style == "thin"
        axes.plot(
            places,
            [line.points[place] for place in places],
            dashes,
            color=colour,
            linewidth=_WIDTHS[line.style],
            alpha=0.45 if quiet else 1.0,
            label="_" if quiet else label,
        )
        if line.band:
            edges = sorted(line.band)
            low, high = ([line.band[place][end] for place in edges] for end in (0, 1))
            axes.fill_between(edges, low, high, color=colour, alpha=0.16, linewidth=0)
    axes.set_xlim(chart.across.low, chart.across.high)
    axes.set_ylim(chart.up.low, chart.up.high)
    axes.set_xticks(chart.across.ticks, [chart.across.words(tick) for tick in chart.across.ticks])
    axes.set_yticks(chart.up.ticks, [chart.up.words(tick) for tick in chart.up.ticks])
    axes.set_xlabel(chart.across.title)
    axes.set_ylabel(chart.up.title)
    axes.grid(axis="y", color="#e3e5e8", linewidth=0.8)
    axes.legend(frameon=False, fontsize=8)


def _draw_bars(chart: BarChart, axes: Any) -> None:
    names = list(chart.groups)
    kinds = list(dict.fromkeys(kind for bars in chart.groups.values() for kind in bars))
    tall = 0.8 / max(1, len(kinds))
    for number, kind in enumerate(kinds):
        known = [
            (place, chart.groups[name][kind])
            for place, name in enumerate(names)
            if kind in chart.groups[name]
        ]
        places = [place - 0.4 + (number + 0.5) * tall for place, _ in known]
        bars = axes.barh(places, [value for _, value in known], tall * 0.9, color=KINDS[kind][0])
        axes.bar_label(bars, [chart.words(value) for _, value in known], fontsize=7, padding=3)
    axes.set_yticks(range(len(names)), [_plain(name[:24]) for name in names])
    axes.invert_yaxis()
    axes.set_xlim(chart.along.low, chart.along.high)
    axes.set_xticks(chart.along.ticks, [chart.along.words(tick) for tick in chart.along.ticks])


def _draw_columns(chart: ColumnChart, axes: Any) -> None:
    places = range(len(chart.columns))
    floor = [0.0] * len(chart.columns)
    for kind in dict.fromkeys(kind for column in chart.columns for kind in column):
        values = [column.get(kind, 0.0) for column in chart.columns]
        axes.bar(places, values, 0.85, bottom=floor, color=KINDS[kind][0])
        floor = [low + value for low, value in zip(floor, values, strict=True)]
    axes.set_xticks(list(chart.marks), list(chart.marks.values()))
    axes.set_ylim(chart.up.low, chart.up.high)
    axes.set_yticks(chart.up.ticks, [chart.up.words(tick) for tick in chart.up.ticks])


def _draw_matrix(chart: MatrixChart, axes: Any) -> None:
    rows = [[cell / max(1, sum(row)) for cell in row] for row in chart.cells]
    axes.imshow(rows, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    names = [_plain(name[:24]) for name in chart.names]
    # Of many classes the names would lie on each other, and so would the numbers.
    step = max(1, len(names) // _NAMED)
    places = range(0, len(names), step)
    axes.set_xticks(places, names[::step], rotation=45 if len(names) > _LEVEL else 0)
    axes.set_yticks(places, names[::step])
    axes.set_xlabel(chart.across)
    axes.set_ylabel(chart.down)
    if len(names) <= _NAMED:
        for down, row in enumerate(chart.cells):
            for across, cell in enumerate(row):
                colour = "white" if rows[down][across] > 0.5 else "black"
                axes.text(across, down, str(cell), ha="center", va="center", fontsize=7, color=colour)


def _plain(words: str) -> str:
    """A dollar sign would begin a formula."""
    return words.replace("$", r"\$")


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:80]
