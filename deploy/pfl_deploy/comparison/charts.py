"""Charts of a comparison, as PNG and SVG: accuracies with intervals, differences from the reference, curves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any  # matplotlib ships no types

from pfl_common.errors import SettingError
from pfl_deploy.comparison.paired import Paired, interval
from pfl_deploy.comparison.result import REPORTED, Compared, Row

try:
    from matplotlib import colormaps, rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
except ImportError:
    raise SettingError(
        "--plots needs matplotlib, which is not installed",
        expected="the optional extra `reports`",
        advice="pip install 'pfl-net[reports]', or leave --plots out",
    ) from None

WIDTH, ROW, DOTS = 7.2, 0.42, 160
_SOFT = "#8b95a5"
_SAME: Any = {"svg.hashsalt": "pfl", "svg.fonttype": "none"}
"""Twice the same bytes; words stay words."""


def draw(found: Compared, folder: Path) -> list[Path]:
    """All charts there is something to show in; each as two files of one name."""
    made: list[Path] = []
    for part in found.parts:
        made += _save(_accuracy(found, part), folder / f"accuracy-{part}")
        if any(part in row.against for row in found.rows):
            made += _save(_differences(found, part), folder / f"differences-{part}")
    if any(_mean_curve(row) for row in found.rows):
        made += _save(_curves(found), folder / "curves")
    return made


def _save(figure: Any, path: Path) -> list[Path]:
    png, svg = path.with_suffix(".png"), path.with_suffix(".svg")
    with rc_context(_SAME):
        FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call]
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return [png, svg]


def _accuracy(found: Compared, part: str) -> Any:
    """A row a contestant: its seeds, their mean and its 95 % interval."""
    figure, axes = _rows(found, f"Mean accuracy over sites, {REPORTED[part]}, in percent")
    for place, row in enumerate(found.rows):
        means = row.means(part)
        if row.failed or not means:
            _say(axes, place, "failed")
        else:
            _interval(axes, place, interval(means), _colours(found)[place])
    return figure


def _differences(found: Compared, part: str) -> Any:
    """A row a contestant: how far it lies from the reference, seed by seed; what cannot be compared is not drawn."""
    title = f"Points against {found.plan.reference}, {REPORTED[part]}"
    figure, axes = _rows(found, title)
    axes.axvline(0.0, color=_SOFT, linewidth=1)
    for place, row in enumerate(found.rows):
        if part in row.against and row.differences.comparable:
            _interval(axes, place, row.against[part], _colours(found)[place])
        elif row.contestant.name != found.plan.reference:
            _say(axes, place, "failed" if row.failed else "not comparable")
    return figure


def _curves(found: Compared) -> Any:
    """The mean over seeds, and from the lowest to the highest of them."""
    figure = Figure(figsize=(WIDTH, 4.4), dpi=DOTS, layout="constrained")
    axes = figure.add_subplot()
    for row, colour in zip(found.rows, _colours(found), strict=True):
        points = _mean_curve(row)
        if points:
            rounds = list(points)
            axes.plot(rounds, [100 * mean for mean, _, _ in points.values()], color=colour, label=_name(row))
            low, high = ([100 * ends[side] for ends in points.values()] for side in (1, 2))
            axes.fill_between(rounds, low, high, color=colour, alpha=0.14, linewidth=0)
    axes.set_xlabel("rounds")
    words = "accuracy over all samples" if found.plan.reading.is_pooled else "mean accuracy over sites"
    axes.set_ylabel(f"{words}, test data, in percent")
    axes.grid(axis="y", color="#e3e5e8", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _rows(found: Compared, title: str) -> tuple[Any, Any]:
    """An empty chart with a row for each contestant, the first on top."""
    figure = Figure(figsize=(WIDTH, 1.1 + ROW * len(found.rows)), dpi=DOTS, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_plain(title), fontsize=10, loc="left")
    axes.set_yticks(range(len(found.rows)), [_name(row) for row in found.rows])
    axes.set_ylim(len(found.rows) - 0.5, -0.5)
    axes.grid(axis="x", color="#e3e5e8", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _interval(axes: Any, place: int, shown: Paired, colour: str) -> None:
    values = [100 * value for value in shown.by_seed.values()]
    axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.35, markersize=4)
    axes.plot([100 * shown.mean], [place], "o", color=colour, markersize=7)
    if shown.low is not None and shown.high is not None:
        axes.plot([100 * shown.low, 100 * shown.high], [place, place], color=colour, linewidth=2)


def _say(axes: Any, place: int, words: str) -> None:
    axes.text(0.01, place, words, color=_SOFT, va="center", fontsize=8, transform=axes.get_yaxis_transform())


def _mean_curve(row: Row) -> Mapping[int, tuple[float, float, float]]:
    """Mean, lowest and highest over seeds at the rounds that all of them measured."""
    curves = [outcome.curve_of(row.reading.acc_average) for outcome in row.outcomes.values()]
    if row.failed or not curves:
        return {}
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    return {number: _mean_and_ends([curve[number] for curve in curves]) for number in shared}


def _mean_and_ends(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.fmean(values), min(values), max(values)


def _colours(found: Compared) -> list[str]:
    """Ten strong ones, then ten pale ones."""
    palette: Any = colormaps["tab20"]
    order = [*range(0, 20, 2), *range(1, 20, 2)]
    return [palette(order[place % 20]) for place in range(len(found.rows))]


def _name(row: Row) -> str:
    return _plain(row.contestant.name)


def _plain(words: str) -> str:
    """A dollar sign would begin a formula."""
    return words.replace("$", r"\$")
