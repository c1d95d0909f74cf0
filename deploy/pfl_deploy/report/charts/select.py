"""Selects a run's charts from its facts; the page and the picture files show the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pfl_deploy.report import formatting
from pfl_deploy.report.charts.model import (
    BarChart,
    Chart,
    ColumnChart,
    Kind,
    Line,
    LineChart,
    Scale,
    percent_scale,
    rounds_scale,
    scale_around,
    scale_to,
    sizes_scale,
    thin,
)
from pfl_deploy.report.facts import Facts, Told, mean_curve, sum_phases
from pfl_deploy.report.sources.evaluations import Point
from pfl_deploy.report.sources.method import group
from pfl_deploy.report.sources.sites import Curve
from pfl_deploy.report.sources.traffic import cumulated

MOST_BARS = 24
"""Sites with a bar of their own; of more a distribution is shown."""
MOST_THIN = 12
"""Sites with a line of their own among diagnostics."""
LEARNING = "learning_"
"""Begins the name of a chart of what training said."""
TOLD = "told_"
"""Begins the name of a chart of what the coordinator told of the rounds."""
MOST_BANDED = 2
"""Lines of a family that have their range over sites as a band: more bands would hide each other."""
_BANDED = (("mean", "least", "most"), ("p50", "p10", "p90"))
"""Parts of a family that belong together: a middle, and the edges of the band around it."""
Band: TypeAlias = dict[int, tuple[float, float]]
_VIEW_KINDS = ("run", "other1", "other2", "other3", "other4")


def draw_all(facts: Facts) -> dict[str, Chart]:
    """All charts by name; one that would show nothing is not there."""
    run = facts.run
    made: dict[str, Chart | None] = {
        "accuracy": accuracy(facts),
        "accuracy_over_bytes": accuracy_over_bytes(facts),
        "shifted": of_part(facts, "shifted"),
        "validation": of_part(facts, "validation"),
        "views": views(run),
        "loss": loss(facts),
        "sites": sites(facts),
        "distribution": distribution(run),
        "round_seconds": round_seconds(run),
        "phases": phases(run),
        "updates": updates(run),
    }
    made |= {f"{TOLD}{name}": chart for name, chart in told(run).items()}
    made |= {f"{LEARNING}{name}": chart for name, chart in learning(run).items()}
    return {name: chart for name, chart in made.items() if chart is not None}


def accuracy(facts: Facts) -> LineChart | None:
    """Mean, spread and worst tenth of the run; the mean of those beside it."""
    return _over_rounds("accuracy over rounds", facts, {t.kind: t.measured.headline[1] for t in facts.all})


def of_part(facts: Facts, part: str) -> LineChart | None:
    """The same on other data: validation, by which settings may be chosen; shifted, the second test."""
    curves = {told.kind: told.measured.curve(told.measured.measure(part)) for told in facts.all}
    return _over_rounds(f"accuracy on {part} data", facts, curves) if curves["run"] else None


def _over_rounds(title: str, facts: Facts, curves: Mapping[str, Sequence[Point]]) -> LineChart | None:
    if not curves["run"]:
        return None
    points = thin(curves["run"])
    lines = [_mean_line(told, curves[told.kind]) for told in reversed(facts.beside) if curves[told.kind]]
    worst = {float(p.after): p.worst_decile for p in points}
    lines.append(Line("worst tenth", "run", worst, style="dashed"))
    band = {
        float(p.after): (max(0.0, p.counts - p.deviation), min(1.0, p.counts + p.deviation)) for p in points
    }
    mean = {float(p.after): p.counts for p in points}
    lines.append(Line(facts.run.name, "run", mean, band, end=f"{100 * points[-1].counts:.1f}"))
    last = max(points[-1].after for points in curves.values() if points)
    return LineChart(title, tuple(lines), rounds_scale(max(1, last)), percent_scale("%"))


def _mean_line(told: Told, points: Sequence[Point]) -> Line:
    shown = thin(points)
    values = {float(point.after): point.counts for point in shown}
    return Line(told.name, told.kind, values, end=f"{100 * shown[-1].counts:.1f}")


def accuracy_over_bytes(facts: Facts) -> LineChart | None:
    """Mean accuracy by the bytes that had crossed the network until then."""
    lines = []
    for told in reversed(facts.all):
        crossed = told.traffic.by_round(measured=facts.measured_bytes)
        points = told.measured.headline[1]
        at = {float(cumulated(crossed, p.after)): p.counts for p in thin(points)}
        if len(at) > 1:
            lines.append(Line(told.name, told.kind, at, end=f"{100 * points[-1].counts:.1f}"))
    if not any(line.kind == "run" for line in lines):
        return None
    across = sizes_scale([place for line in lines for place in line.points], "bytes")
    return LineChart("accuracy over bytes", tuple(lines), across, percent_scale("%"))


def views(run: Told) -> LineChart | None:
    """Each head's own accuracy, where a method has several."""
    point, part, _ = run.measured.headline[0].split("/")
    named = {
        name.rpartition("/")[2]: run.measured.curve(name)
        for name in run.measured.curves
        if name.startswith(f"{point}/{part}/")
    }
    if len(named) < 2:
        return None
    lines = [
        Line(
            view,
            kind,
            {float(p.after): p.counts for p in thin(points)},
            end=f"{view} {100 * points[-1].counts:.1f}",
        )
        for kind, (view, points) in zip(_VIEW_KINDS, named.items(), strict=False)
    ]
    last = max(points[-1].after for points in named.values())
    return LineChart("accuracy by head", tuple(lines), rounds_scale(max(1, last)), percent_scale("%"))


def loss(facts: Facts) -> LineChart | None:
    """The mean over sites of the loss on test data."""
    lines = [
        Line(
            told.name,
            told.kind,
            {float(p.after): p.loss for p in thin(points)},
            end=f"{points[-1].loss:.2f}",
        )
        for told in reversed(facts.all)
        if (points := told.measured.headline[1])
    ]
    if not any(line.kind == "run" for line in lines):
        return None
    last = max(max(line.points) for line in lines)
    up = scale_to([value for line in lines for value in line.points.values()])
    return LineChart("loss on test data", tuple(lines), rounds_scale(max(1, int(last))), up)


def sites(facts: Facts) -> BarChart | None:
    """Each site's own accuracy, where its owner lays its history beside the report."""
    named = facts.run.finals
    if not named or len(named) > MOST_BARS:
        return None
    order = sorted(facts.beside, key=lambda told: told.kind != "local")
    groups = {
        site: {told.kind: told.finals[site] for told in (*order, facts.run) if site in told.finals}
        for site in named
    }
    return bars_by_site(groups)


def bars_by_site(groups: Mapping[str, Mapping[Kind, float]]) -> BarChart:
    """Accuracy by site and by run."""
    return BarChart("accuracy by site", groups, percent_scale("%"), _in_percent)


def curves_over_rounds(title: str, curves: Mapping[Kind, Curve], rounds: int) -> LineChart:
    """Accuracy over rounds, one line a run; each line's last value stands at its end."""
    lines = tuple(
        Line(kind, kind, {float(n): value for n, value in curve.items()}, end=_in_percent(curve[max(curve)]))
        for kind, curve in curves.items()
    )
    return LineChart(title, lines, rounds_scale(rounds), percent_scale())


def distribution(run: Told) -> ColumnChart | None:
    """The number of sites by accuracy, in steps of five percent; the sums hold no more than this, and no names.

    They hold accuracies rounded to whole percents, so only a step between halves (87.5 to 92.5) has exactly the
    sites that belong to it; its column then stands around its own mark (90).
    """
    bins = run.measured.histogram
    if not bins:
        return None
    held = Counter({step: 0 for step in range(21)})
    for percent, count in bins.items():
        held[(percent + 2) // 5] += count
    steps = sorted(held)
    return ColumnChart(
        "sites by accuracy",
        tuple({"run": float(held[step])} for step in steps),
        tuple(
            f"{max(0, 5 * step - 2.5):g} to {min(100, 5 * step + 2.5):g} %: {formatting.counted(held[step], 'site')}"
            for step in steps
        ),
        {step: f"{5 * step}" for step in steps if step % 4 == 0},
        whole_scale(max(held.values())),
    )


def whole_scale(most: int) -> Scale:
    """Counts: no half sites."""
    scale = scale_to([float(max(1, most))], "{:.0f}".format)
    ticks = tuple(tick for tick in scale.ticks if tick == int(tick))
    return Scale(scale.low, max(scale.high, 1.0), ticks, scale.words)


def round_seconds(run: Told) -> ColumnChart | None:
    """From a round's opening to its commit."""
    known = [(t.round, t.course.ended - t.course.opened) for t in run.record.committed if t.course]
    return columns_by_round(known) if known else None


def columns_by_round(known: Sequence[tuple[int, float]]) -> ColumnChart:
    """Seconds by the number of the round."""
    shown = thin(known)
    return ColumnChart(
        "seconds per round",
        tuple({"run": seconds} for _, seconds in shown),
        tuple(f"round {number}: {seconds:.2f} s" for number, seconds in shown),
        _round_marks([number for number, _ in shown]),
        scale_to([seconds for _, seconds in shown], lambda value: f"{value:g} s"),
    )


def phases(run: Told) -> BarChart | None:
    """Where the time goes: of a site's update, and of a round."""
    found = {name: mean for name, (_, mean) in sum_phases(run.record).items()}
    if not found:
        return None
    order = ("wait", "seal", "download", "work", "upload", "verify", "fold", "commit")
    named = sorted(found, key=lambda name: order.index(name) if name in order else len(order))
    return BarChart(
        "mean seconds by phase",
        {name: {"run": found[name]} for name in named},
        scale_to(found.values(), lambda value: f"{value:g} s"),
        formatting.duration,
    )


def updates(run: Told) -> ColumnChart | None:
    """Updates that were counted, and those that did not come, over all attempts."""
    attempts = [tried for tried in run.record.attempts if tried.status != "open"]
    if not any(tried.losses or tried.status == "abandoned" for tried in attempts):
        return None
    shown = thin(attempts)
    columns = tuple({"run": float(len(t.counted)), "lost": float(len(t.losses))} for t in shown)
    return ColumnChart(
        "updates counted and lost",
        columns,
        tuple(f"round {t.round}, attempt {t.attempt}: {len(t.counted)} counted" for t in shown),
        _round_marks([tried.round for tried in shown]),
        whole_scale(max(int(sum(column.values())) for column in columns)),
    )


def learning(run: Told) -> dict[str, LineChart]:
    """Training numbers of the sites: one chart for a family of numbers, means over sites."""
    names = sorted({name for history in run.histories.values() for name in history.learning})
    said = {name: [h.learning[name] for h in run.histories.values() if name in h.learning] for name in names}
    means, ranges = dict[str, Curve](), dict[str, Band]()
    for name, curves in said.items():
        means[name], ranges[name] = mean_curve(curves)
    if run.learning_is_summed:
        for name, spreads in run.summed.items():
            means[name] = {n: spread.mean for n, spread in spreads.items()}
            ranges[name] = {n: (s.mean - s.deviation, s.mean + s.deviation) for n, s in spreads.items()}
    made: dict[str, LineChart] = {}
    for family, parts in group(means).items():
        if len(parts) == 1:
            (part,) = parts
            name = f"{family}/{part}" if part else family
            made[family] = _by_site(name, said.get(name, []), means[name], ranges[name])
        else:
            bands = {part: ranges[f"{family}/{part}" if part else family] for part in parts}
            made |= draw_family(family, parts, bands)
    return made


def _by_site(name: str, curves: Sequence[Curve], mean: Curve, band: Band) -> LineChart:
    """The mean and the range over sites, and a thin line for each site where they are few."""
    shown = thin(sorted(mean))
    lines = [
        Line("one site", "run", {float(n): curve[n] for n in shown if n in curve}, style="thin")
        for curve in (curves if len(curves) <= MOST_THIN else [])
    ]
    points, edges = {float(n): mean[n] for n in shown}, {float(n): band[n] for n in shown}
    lines.append(Line(name, "run", points, edges, end=f"{mean[shown[-1]]:.3g}"))
    up = scale_to([value for ends in band.values() for value in ends])
    return LineChart(name, tuple(lines), rounds_scale(max(1, max(mean))), up)


def told(run: Told) -> dict[str, LineChart]:
    """Numbers from the coordinator's half of the method: one chart for a family of numbers."""
    made: dict[str, LineChart] = {}
    for name, parts in group(run.diagnostics).items():
        made |= draw_family(name, parts, {})
    return made


def draw_family(name: str, parts: Mapping[str, Curve], ranges: Mapping[str, Band]) -> dict[str, LineChart]:
    """A line for each number; what lies between a least and a most, or between quantiles, is a band around a middle.

    Few lines have their range over sites as a band; more lines than there are colours stand in several charts.
    """
    bands = _find_bands(parts)
    edges = {end for middle, low, high in _BANDED if middle in bands for end in (low, high)}
    shown = [part for part in parts if part not in edges]
    if len(shown) <= MOST_BANDED:
        bands = {**{part: ranges[part] for part in shown if part in ranges}, **bands}
    charts = [shown[start : start + len(_VIEW_KINDS)] for start in range(0, len(shown), len(_VIEW_KINDS))]
    titles = [
        name if len(charts) == 1 else f"{name} ({n} of {len(charts)})" for n in range(1, len(charts) + 1)
    ]
    return {
        title: _draw_lines(name, title, {part: parts[part] for part in chosen}, bands)
        for title, chosen in zip(titles, charts, strict=True)
    }


def _find_bands(parts: Mapping[str, Curve]) -> dict[str, Band]:
    """By the name of the middle: the edges at the rounds that know both."""
    return {
        middle: {n: (parts[low][n], parts[high][n]) for n in parts[low].keys() & parts[high].keys()}
        for middle, low, high in _BANDED
        if {middle, low, high} <= parts.keys()
    }


def _draw_lines(name: str, title: str, parts: Mapping[str, Curve], bands: Mapping[str, Band]) -> LineChart:
    lines, values = list[Line](), list[float]()
    for kind, (part, curve) in zip(_VIEW_KINDS, parts.items(), strict=False):
        points = {float(number): curve[number] for number in thin(sorted(curve))}
        known = bands.get(part, {})
        band = {n: known[int(n)] for n in points if int(n) in known}
        last = f"{points[max(points)]:.3g}"
        lines.append(Line(part or name, kind, points, band, end=f"{part} {last}" if len(parts) > 1 else last))
        values += [*curve.values(), *(end for ends in known.values() for end in ends)]
    up = scale_around(values) if len(parts) > 1 else scale_to(values)
    return LineChart(title, tuple(lines), rounds_scale(max(max(curve) for curve in parts.values())), up)


def _round_marks(numbers: Sequence[int]) -> dict[int, str]:
    step = max(1, round(numbers[-1] / 5 / 5) * 5) if numbers[-1] > 10 else 1
    return {
        place: str(number)
        for place, number in enumerate(numbers)
        if (number == 1 or number % step == 0) and (not place or numbers[place - 1] != number)
    }


def _in_percent(value: float) -> str:
    return f"{100 * value:.1f}"
