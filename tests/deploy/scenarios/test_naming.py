"""A panel that names what its data do not have is found out: each fault is planted once."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.deploy.support.naming import Drawn, find_strays, find_twins
from tests.deploy.support.watching import panels_of

RUNS = [{"run": "r1", "method": "m"}, {"run": "r2", "method": "m"}]
BAND = {"A": [{"instance": "a:1"}], "B": [{"instance": "a:1"}], **{ref: [{"run": "r1"}] for ref in "CDE"}}
X = ("options", "series", 0, "x", "matcher", "options")
PARTED = ("transformations", 1, "options", "fields")
RENAMED = ("transformations", 1, "options", "renameByName")
LEFT_OUT = ("transformations", 1, "options", "excludeByName")


def look_at(title: str, series: Drawn | list[dict[str, str]]) -> tuple[dict[str, Any], Drawn]:
    """A panel as it is, and what its queries gave; the same for each of them, if one list is given."""
    panels = [panel for name in ("comparison.json", "federation.json") for panel in panels_of(name)]
    (panel,) = (one for one in panels if one["title"] == title)
    refs = [target["refId"] for target in panel["targets"]]
    return panel, series if isinstance(series, dict) else dict.fromkeys(refs, series)


@pytest.mark.parametrize(
    ("title", "series"),
    [
        ("Accuracy over rounds", RUNS),
        ("Runs", RUNS),
        ("Accuracy over sites", BAND),
        ("Round", [{"run": "r"}]),
    ],
)
def test_a_panel_names_what_is_there(title: str, series: Drawn | list[dict[str, str]]) -> None:
    """Nothing is found on panels as they are, with the labels their queries give."""
    assert [] == find_strays(*look_at(title, series))


@pytest.mark.parametrize(
    ("title", "path", "value", "found"),
    [
        ("Accuracy over rounds", X, "Value #C", "axis 'Value #C'"),
        ("Accuracy over rounds", X, "Value #A", "both axes are 'Value #A'"),
        ("Accuracy over rounds", PARTED, ["method", "runs"], "parts by 'runs'"),
        ("Accuracy over rounds", PARTED, ["method"], "label 'run' parts no lines"),
        ("Accuracy over rounds", PARTED, ["method", "run", "Value #A"], "parts by 'Value #A'"),
        ("Accuracy over rounds", ("transformations",), [], "nothing merges them"),
        (
            "Accuracy over rounds",
            ("fieldConfig", "overrides", 0, "matcher", "options"),
            "Value #Z",
            "override",
        ),
        ("Runs", RENAMED, {"Value #Z": "bytes"}, "renames 'Value #Z'"),
        ("Runs", LEFT_OUT, {"Tme": True}, "leaves out 'Tme'"),
        ("Runs", ("fieldConfig", "overrides", 0, "matcher", "options"), "lost accuracy", "override"),
        ("Accuracy over sites", ("targets", 2, "legendFormat"), "mean of sites {{runs}}", "legend 'runs'"),
        ("Accuracy over sites", ("targets", 0, "legendFormat"), "mean + deviations", "override"),
        ("Accuracy over sites", ("targets", 1, "legendFormat"), "mean - deviation", "filled below"),
        (
            "Accuracy over sites",
            ("fieldConfig", "overrides", 2, "matcher", "options"),
            "/^median/",
            "override",
        ),
    ],
)
def test_a_name_in_vain_is_found(title: str, path: tuple[Any, ...], value: object, found: str) -> None:
    """A wrong axis, column, label or legend is said in words."""
    panel, drawn = look_at(title, BAND if title == "Accuracy over sites" else RUNS)
    spoilt = deepcopy(panel)
    place: Any = spoilt
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert found in "\n".join(find_strays(spoilt, drawn))


def test_a_query_without_a_label_is_found() -> None:
    """Rows of which only one has the run are not one row, however well the panel's names fit."""
    panel, drawn = look_at("Accuracy over rounds", {"A": RUNS, "B": [{"method": "m"}]})
    assert ["label 'run' is not in all that is merged"] == find_strays(panel, drawn)


def test_a_colour_that_is_given_twice_is_found() -> None:
    """`away` is yellow, and so may be what the palette colours beside it; what only frames a band is nobody's twin."""
    panel, drawn = look_at(
        "Registered sites", [{"state": state, "run": "r1"} for state in ("away", "here", "left")]
    )
    assert [] == find_twins(panel, drawn)
    spoilt = deepcopy(panel)
    del spoilt["fieldConfig"]["overrides"][0]
    assert ["here r1"] == find_twins(spoilt, drawn)
    assert [] == find_twins(*look_at("Accuracy over sites", BAND))
