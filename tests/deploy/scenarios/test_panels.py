"""What panels show, asked of Prometheus's own evaluator with numbers made up for the case."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.deploy.support.tools import tool
from tests.deploy.support.watching import every_query, panels_of, read_dashboard

Expected: TypeAlias = dict[tuple[str, int], dict[str, float]]
"""What an expression gives at a minute: values by their labels."""

ALL = dict.fromkeys(("job", "instance", "run", "method"), ".*")
ALL |= {"window": "5m", "statistic": "macro", "__range": "2h"}
"""What a reader who has chosen nothing has chosen."""
A, B = "a:1", "b:1"
"""Where two coordinators are."""
SHOWN = {"split": "test", "view": "combined"}
"""The labels of the accuracy that is drawn."""


def expressions(panel: str, *, dashboard: str = "federation.json", **chosen: str) -> list[str]:
    """What a panel asks, as Grafana sends it."""
    asked = [one.expr for one in every_query() if (one.dashboard, one.panel) == (dashboard, panel)]
    assert asked, panel
    return [re.sub(r"\$(\w+)", lambda found: (ALL | chosen)[found[1]], expr) for expr in asked]


def at(place: str, name: str = "", **labels: str) -> str:
    """A coordinator's series, as PromQL names it."""
    words = ", ".join(
        f'{label}="{value}"' for label, value in {"job": "c", "instance": place, **labels}.items()
    )
    return f"{name}{{{words}}}"


def states(place: str, **values: str) -> dict[str, str]:
    """A run's states over time."""
    return {at(place, "pfl_run_state", state=state): steps for state, steps in values.items()}


def see(folder: Path, series: dict[str, str], expected: Expected) -> None:
    """Evaluate expressions at minutes; fails with what was seen where something else was expected."""
    wanted = [
        {
            "expr": expr,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for (expr, minute), samples in expected.items()
    ]
    given = [{"series": name, "values": steps} for name, steps in series.items()]
    file = folder / "panels.yaml"
    file.write_text(
        json.dumps({"tests": [{"interval": "1m", "input_series": given, "promql_expr_test": wanted}]})
    )
    command = [tool("promtool", "prometheus"), "test", "rules", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == told.returncode, told.stdout + told.stderr


def test_the_clocks_of_a_run_stop_with_it(tmp_path: Path) -> None:
    """A run's time stands still once it is over; no round is open any more, and no time is left.

    It begins in second 60; the last of its two rounds is opened in minute 4 and closed in minute 5.
    """
    series = {
        at(A, "pfl_run_info", run="r1", method="m"): "1x60",
        at(A, "pfl_run_started_timestamp_seconds"): "60x60",
        at(A, "pfl_round_opened_timestamp_seconds"): "60x3 240x56",
        at(A, "pfl_round_closed_timestamp_seconds"): "_x2 180x2 300x55",
        at(A, "pfl_round_seconds_sum", outcome="committed"): "0x1 60x2 120x55",
        at(A, "pfl_round_seconds_count", outcome="committed"): "0x1 1x2 2x55",
        at(A, "pfl_rounds_planned"): "2x60",
        at(A, "pfl_round"): "1x3 2x56",
        **states(A, running="1x4 0x55", finished="0x4 1x55"),
    }
    (lasted,), (opened,), (left,) = (
        expressions(name) for name in ("Run time", "Round open for", "Time left")
    )
    mine = at(A, run="r1")
    expected: Expected = {
        (lasted, 2): {mine: 60},
        (lasted, 4): {mine: 180},
        (lasted, 6): {mine: 240},
        (lasted, 50): {mine: 240},
        (opened, 4): {mine: 0},
        (opened, 6): {},
        (left, 1): {},
        (left, 4): {mine: 60},
        (left, 6): {},
    }
    see(tmp_path, series, expected)


def test_a_run_without_rounds_has_no_time(tmp_path: Path) -> None:
    """Stopped before its first round was closed, a run is over all the same: its time does not go on."""
    (lasted,) = expressions("Run time")
    series = {
        at(A, "pfl_run_info", run="r1", method="m"): "1x60",
        at(A, "pfl_run_started_timestamp_seconds"): "60x60",
        **states(A, running="1x4 0x55", stopped="0x4 1x55"),
    }
    see(tmp_path, series, {(lasted, 3): {at(A, run="r1"): 120}, (lasted, 9): {}})


def test_now_is_the_run_that_is_served(tmp_path: Path) -> None:
    """With nothing chosen, a run that was served before is not shown beside the one that is; history has both."""
    (state,), mean = expressions("State"), expressions("Accuracy over sites")[2]
    (other,) = expressions("State", run="r2")
    series = {
        at(A, "pfl_run_info", run="r2", method="m"): "1x8 stale",
        at(A, "pfl_run_info", run="r1", method="m"): "_x10 1x30",
        **states(A, running="1x5 0x3 1x30", finished="0x5 1x3 0x30"),
        at(A, "pfl_accuracy_ratio", **SHOWN, statistic="macro"): "0.5x40",
    }
    expected: Expected = {
        (state, 8): {at(A, run="r2", state="finished"): 1},
        (state, 12): {at(A, run="r1", state="running"): 1},
        (other, 12): {},
        (mean, 8): {at(A, **SHOWN, statistic="macro", run="r2"): 0.5},
        (mean, 12): {at(A, **SHOWN, statistic="macro", run="r1"): 0.5},
    }
    see(tmp_path, series, expected)


def test_a_band_frames_one_run_alone(tmp_path: Path) -> None:
    """Where two coordinators serve at once, each has its own line and none a band: they would lie over each other."""
    upper, lower, mean = expressions("Accuracy over sites")[:3]
    alone = expressions("Accuracy over sites", run="r1")[0]
    series = {
        at(A, "pfl_run_info", run="r1", method="m"): "1x20",
        at(B, "pfl_run_info", run="r2", method="m"): "_x10 1x10",
    }
    for place, begin in ((A, ""), (B, "_x10 ")):
        series |= {
            at(place, "pfl_accuracy_ratio", **SHOWN, statistic=name): f"{begin}{value}x20"
            for name, value in (("macro", 0.5), ("std", 0.125))
        }
    expected: Expected = {
        (upper, 5): {at(A, **SHOWN): 0.625},
        (lower, 5): {at(A, **SHOWN): 0.375},
        (upper, 15): {},
        (lower, 15): {},
        (mean, 15): {
            at(A, **SHOWN, statistic="macro", run="r1"): 0.5,
            at(B, **SHOWN, statistic="macro", run="r2"): 0.5,
        },
        (alone, 15): {at(A, **SHOWN): 0.625},
    }
    see(tmp_path, series, expected)


def test_a_band_is_seen_by_its_filling_alone() -> None:
    """Grafana puts points on a line with few moments, whatever its width: on what frames a band they would be noise."""
    (panel,) = (one for one in panels_of("federation.json") if one["title"] == "Accuracy over sites")
    frames = [
        {one["id"]: one["value"] for one in each["properties"]} for each in panel["fieldConfig"]["overrides"]
    ]
    frames = [frame for frame in frames if frame.get("custom.hideFrom")]
    assert 2 == len(frames)
    assert {(0, "never")} == {(one["custom.lineWidth"], one.get("custom.showPoints")) for one in frames}


def test_who_comes_back_has_gained_nothing_by_it(tmp_path: Path) -> None:
    """A pod at another address tells what it had counted before: of a window, only what came then is shown."""
    (gained,) = expressions("Updates that did not come")
    lost = {"reason": "lease", "stage": "working"}
    series = {
        at(A, "pfl_run_info", run="r1", method="m"): "1x18 stale",
        at(A, "pfl_losses_total", **lost): "_x9 2 2x4 6x4 stale",
        at(B, "pfl_run_info", run="r1", method="m"): "_x20 1x40",
        at(B, "pfl_losses_total", **lost): "_x20 6x10 9x30",
    }
    expected: Expected = {
        (gained, 10): {at(A, **lost, run="r1"): 2},
        (gained, 22): {at(B, **lost, run="r1"): 0},
        (gained, 50): {at(B, **lost, run="r1"): 0},
    }
    see(tmp_path, series, expected)
    some = f"{gained} > 2 < 4"
    see(tmp_path, series, {(f"count({some})", 33): {"{}": 1}})


def test_only_what_was_refused_is_a_line(tmp_path: Path) -> None:
    """Every code is counted from 0 on, and there are dozens: those that nobody was told are no lines."""
    (refused,) = expressions("Refusals")
    series = {
        at(A, "pfl_run_info", run="r1", method="m"): "1x40",
        at(A, "pfl_refusals_total", code="late"): "0x40",
        at(A, "pfl_refusals_total", code="busy"): "_x20 2x20",
    }
    see(tmp_path, series, {(refused, 10): {}, (refused, 22): {at(A, code="busy", run="r1"): 2}})


def test_bytes_of_a_run_are_counted_once(tmp_path: Path) -> None:
    """A coordinator that comes back at another address counts on: its bytes are the last ones, not their sum."""
    _, moved = expressions("Accuracy over bytes", dashboard="comparison.json")
    named = {"run": "r1", "method": "m"}
    series = {
        at(A, "run:pfl_bytes:sum", **named, direction="down"): "0+10x10 stale",
        at(A, "run:pfl_bytes:sum", **named, direction="up"): "0+1x10 stale",
        at(B, "run:pfl_bytes:sum", **named, direction="down"): "_x15 90 120x20",
        at(B, "run:pfl_bytes:sum", **named, direction="up"): "_x15 9 12x20",
    }
    whole = '{run="r1", method="m"}'
    see(tmp_path, series, {(moved, 9): {whole: 99}, (moved, 30): {whole: 132}})


def test_what_is_served_now_is_chosen_at_first() -> None:
    """A user who opens *Federation* has chosen all runs, those among them that begin while it is open."""
    (run,) = (one for one in read_dashboard("federation.json")["templating"]["list"] if one["name"] == "run")
    assert {"text": ["All"], "value": ["$__all"]} == run["current"]
    assert (True, True, ".*", 2) == (run["multi"], run["includeAll"], run["allValue"], run["refresh"])


def test_each_line_says_whose_it_is() -> None:
    """Every series of *Federation* is named after its run, but the frame of a band."""
    for panel in panels_of("federation.json"):
        for target in panel["targets"]:
            framed = target["legendFormat"] in ("mean + deviation", "mean − deviation")
            assert framed != target["legendFormat"].endswith(" {{run}}"), (panel["title"], target["refId"])


@pytest.mark.parametrize(
    ("dashboard", "title"),
    [
        ("federation.json", "Gain over baselines"),
        ("federation.json", "Updates that did not come"),
        ("federation.json", "Refusals"),
        ("site.json", "Refused by the coordinator"),
        ("site.json", "Tasks not done"),
    ],
)
def test_a_panel_that_is_empty_while_all_is_well_says_so(dashboard: str, title: str) -> None:
    """Nothing refused, nothing lost, nothing to compare with: in words, not as a panel without data."""
    (panel,) = (one for one in panels_of(dashboard) if one["title"] == title)
    assert re.search(r"\b(none|no)\b", panel["fieldConfig"]["defaults"]["noValue"])


def test_a_certificate_is_green_only_where_no_alert_is_near() -> None:
    """The coordinator's and the authority's are yellow for as long as their alert fires: 14 days, a site's 8."""
    (panel,) = (one for one in panels_of("federation.json") if one["title"].startswith("Days until"))
    (override,) = panel["fieldConfig"]["overrides"]
    assert re.search(override["matcher"]["options"].strip("/"), "authority r1")
    (longer,) = (one["value"]["steps"] for one in override["properties"] if one["id"] == "thresholds")
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(14, "green"), (8, "green")] == [(one[-1]["value"], one[-1]["color"]) for one in (longer, steps)]


def test_a_line_is_as_red_as_the_words_say() -> None:
    """Grafana draws a step in the colour above it, unless that is transparent: then in the one from below."""
    for name, title in (("federation.json", "Disk"), ("federation.json", "Gain over baselines")):
        (panel,) = (one for one in panels_of(name) if one["title"] == title)
        assert "red line" in panel["description"]
        colours = [step["color"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert ["red", "transparent"] == colours
