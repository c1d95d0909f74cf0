"""The dashboard *Comparison of runs*: method against method, over rounds, bytes and time.

Prometheus knows time alone. Accuracy over rounds comes from two questions about the same moments, one for each axis:
Grafana merges their rows by moment, run and method, and draws one line for each run. All ask for recorded numbers
(deploy/prometheus/rules/pfl.rules.yaml), which carry the run's name, so that two runs of one coordinator are two.
"""

from __future__ import annotations

from collections.abc import Sequence

from pfl_deploy.monitoring.dashboards.build import (
    BLUE,
    Dashboard,
    Json,
    Look,
    Panel,
    Query,
    Row,
    Variable,
    by_name,
)

_RUNS = 'run=~"$run", method=~"$method"'
_BY = "by (run, method)"
_ACCURACY = f'run:pfl_accuracy_ratio:now{{{_RUNS}, statistic="$statistic"}}'
_BYTES = f"run:pfl_bytes:sum{{{_RUNS}}}[$__range]"
# A coordinator that comes back, at another address too, counts on from what it had: the most that was seen is all.
_MOVED = f"sum {_BY} (max by (run, method, direction) (max_over_time({_BYTES})))"
_ROUND = f"max {_BY} (run:pfl_round:now{{{_RUNS}}})"
_ELAPSED = f"max {_BY} (run:pfl_elapsed_seconds:now{{{_RUNS}}})"
_HONEST = (
    "Set the time range so that it begins before the runs do, and look back no further than needed. A point is what "
    "was known at one moment: the accuracy last measured, beside what stands on the other axis. "
)
_MERGED: Json = {"id": "merge", "options": {}}
_A_LINE_EACH: Json = {
    "id": "partitionByValues",
    "options": {"fields": ["method", "run"], "keepFields": False, "naming": {"asLabels": False}},
}


def _last(name: str, *more: str) -> str:
    return f"max {_BY} (last_over_time({name}{{{', '.join((_RUNS, *more))}}}[$__range]))"


def _statistic(name: str) -> str:
    return _last("run:pfl_accuracy_ratio:now", f'statistic="{name}"')


def _first_at_target(spent: str) -> str:
    """The least of something that was spent at any moment at which the target was reached."""
    reached = f"max {_BY} ({_ACCURACY}) >= $target"
    return f"min_over_time(({spent} and on (run, method) ({reached}))[$__range:$__interval])"


def _over(title: str, words: str, unit: str, *, across: str, axis: str) -> Panel:
    """Accuracy over something else than time: the second question is the horizontal axis."""
    queries = (Query(f"max {_BY} ({_ACCURACY})", rows=True), Query(across, rows=True))
    series = [{"x": _match("Value #B"), "y": _match("Value #A")}]
    overrides = (
        by_name("Value #B", unit=unit, custom_axisLabel=axis, min=0),
        by_name("Value #A", custom_axisLabel="accuracy"),
    )
    look = Look(
        height=10, overrides=overrides, transformations=(_MERGED, _A_LINE_EACH), options={"series": series}
    )
    return Panel("xychart", title, words, "percentunit", queries, 8, look)


def _match(name: str) -> Json:
    return {"matcher": {"id": "byName", "options": name}}


def _table(
    title: str, words: str, columns: Sequence[tuple[str, str, str]], *, height: int, width: int
) -> Panel:
    """One row for each run; a column is its heading, its unit and its question."""
    names = {f"Value #{chr(ord('A') + place)}": heading for place, (heading, _, _) in enumerate(columns)}
    look = Look(
        height=height,
        base="text",
        overrides=tuple(by_name(heading, unit=unit) for heading, unit, _ in columns),
        transformations=(
            _MERGED,
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}},
        ),
    )
    queries = tuple(Query(expr, once=True, rows=True) for _, _, expr in columns)
    return Panel("table", title, words, "none", queries, width, look)


_CURVES = Row(
    "Method against method",
    (
        _over(
            "Accuracy over rounds",
            f"{_HONEST}A method that is behind here may be ahead over bytes or time.",
            "none",
            across=_ROUND,
            axis="round under way",
        ),
        _over(
            "Accuracy over bytes",
            f"{_HONEST}Bytes of both directions and all sites, counted on through restarts of the coordinator. A run "
            "far to the right sends more than it learns.",
            "bytes",
            across=_MOVED,
            axis="bytes that crossed so far",
        ),
        _over(
            "Accuracy over time",
            f"{_HONEST}Seconds from the run's begin to its last committed round. Fair only between runs on the same "
            "machines.",
            "s",
            across=_ELAPSED,
            axis="since the run began",
        ),
    ),
)

_FIGURES = Row(
    "In figures",
    (
        _table(
            "Runs",
            "Last and best accuracy, its spread over sites, what it cost. Best far above last: training "
            "went on too long or diverges. A missing row: its numbers lie before the time range.",
            (
                (
                    "last accuracy",
                    "percentunit",
                    _last("run:pfl_accuracy_ratio:now", 'statistic="$statistic"'),
                ),
                ("best accuracy", "percentunit", f"max {_BY} (max_over_time({_ACCURACY}[$__range]))"),
                ("deviation over sites", "percentunit", _statistic("std")),
                ("worst tenth of sites", "percentunit", _statistic("worst_decile")),
                ("round", "none", _last("run:pfl_round:now")),
                ("bytes", "bytes", _MOVED),
                ("bytes a round", "bytes", f"{_MOVED} / clamp_min({_last('run:pfl_round:now')}, 1)"),
                ("seconds a round", "s", _last("run:pfl_round_seconds:usual")),
            ),
            height=9,
            width=14,
        ),
        _table(
            "What the target cost",
            "The least that had been spent when the accuracy chosen above was first seen. A run that is "
            "missing has not reached it: choose a lower one.",
            (
                ("round", "none", _first_at_target(_ROUND)),
                ("bytes", "bytes", _first_at_target(_MOVED)),
                ("time", "s", _first_at_target(_ELAPSED)),
            ),
            height=9,
            width=6,
        ),
        Panel(
            "bargauge",
            "Seconds a round",
            "The mean of all committed rounds. One method far slower than others on the same machines: see “Round "
            "time by phase” on *Federation* for where.",
            "s",
            (Query(_last("run:pfl_round_seconds:usual"), "{{method}} {{run}}"),),
            4,
            Look(height=9, base=BLUE, low=0),
        ),
    ),
)

COMPARISON = Dashboard(
    "pfl-comparison",
    "Comparison of runs",
    "Method against method. Several runs, at once or one after the other, of any coordinators this Prometheus watches. "
    "It needs the recording rules of deploy/prometheus/rules.",
    (
        Variable("method", "Method", "label_values(run:pfl_round:now, method)", many=True),
        Variable("run", "Run", 'label_values(run:pfl_round:now{method=~"$method"}, run)', many=True),
        Variable("statistic", "Accuracy", "macro,micro,worst_decile", "custom", chosen="macro"),
        Variable("target", "Target accuracy", "0.8", "textbox", chosen="0.8"),
    ),
    (_CURVES, _FIGURES),
    since="now-12h",
)
