"""The dashboards' files: as Grafana wants them, and no more and no less than the programs really tell."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from pfl_deploy.monitoring.dashboards import DASHBOARDS as MADE
from pfl_deploy.monitoring.dashboards import write_all
from pfl_deploy.monitoring.dashboards.build import write
from tests.deploy.support.schemas import find_faults
from tests.deploy.support.watching import (
    ALERTS,
    DASHBOARDS,
    DEPLOY,
    GRAFANA,
    PROMETHEUS,
    RULES,
    alerts,
    declared,
    every_choice,
    every_query,
    exposed,
    names_in,
    on_dashboards,
    panels_of,
    read_dashboard,
    recorded,
)

SCHEMA = json.loads(Path(__file__).with_name("grafana.schema.json").read_text(encoding="utf-8"))
KINDS = {"stat", "timeseries", "table", "bargauge", "state-timeline", "xychart"}
UNITS = {"none", "s", "d", "bytes", "Bps", "percentunit", "bool_yes_no"}
TRANSFORMATIONS = {"merge", "organize", "partitionByValues"}
LIBRARY = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""What prometheus-client tells of any Python program."""
VARIABLES = {"__range", "__interval", "__rate_interval"}
"""What Grafana itself puts in."""


def rules() -> str:
    """The rules of both kinds, without their words for people."""
    lines = (RULES.read_text() + ALERTS.read_text()).splitlines()
    return "\n".join(line.partition("#")[0] for line in lines)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_files_are_what_is_written(name: str, tmp_path: Path) -> None:
    """Written anew, nothing differs: a change of a dashboard here also writes its file."""
    write_all(tmp_path)
    assert (tmp_path / name).read_text() == (GRAFANA / "dashboards" / name).read_text()


def test_every_dashboard_is_looked_at() -> None:
    """What is made, what lies there and what these tests read are the same files."""
    assert set(DASHBOARDS) == set(MADE) == {file.name for file in (GRAFANA / "dashboards").iterdir()}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_reads_it(name: str) -> None:
    """A dashboard keeps to the types Grafana publishes, and each panel to those of its kind."""
    assert [] == find_faults(SCHEMA["Dashboard"], read_dashboard(name))
    for panel in panels_of(name):
        assert panel["type"] in KINDS
        kind = SCHEMA[panel["type"]]
        assert [] == find_faults(kind["Options"], panel["options"]), panel["title"]
        if "FieldConfig" in kind:
            custom = panel["fieldConfig"]["defaults"]["custom"]
            assert [] == find_faults(kind["FieldConfig"], custom), panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_no_panel_is_taken_for_an_old_one(name: str) -> None:
    """Without a version, or with one before 11.1, Grafana rewrites an XY chart's options as older ones were."""
    compose = (DEPLOY / "docker" / "compose.yaml").read_text()
    (served,) = re.findall(r"grafana/grafana:(\d+\.\d+\.\d+)", compose)
    assert (11, 1) <= tuple(map(int, served.split(".")[:2]))
    assert {} == {one["title"]: one for one in panels_of(name) if one.get("pluginVersion") != served}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("panels", 1, "gridPos", "w"), "wide"),
        (("panels", 1, "fieldConfig", "defaults", "thresholds", "mode"), "absolutely"),
        (("panels", 1, "tittle"), "State"),
        (("templating", "list", 1, "type"), "question"),
        (("graphTooltip",), 7),
    ],
)
def test_the_schema_sees_faults(path: tuple[str | int, ...], value: object) -> None:
    """A wrong type, word or name is found: the schema is not read with closed eyes."""
    spoilt = read_dashboard("federation.json")
    place = spoilt
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert [] != find_faults(SCHEMA["Dashboard"], spoilt)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_panel_explains_itself(name: str) -> None:
    """Each panel has a title of its own, a unit, and says what to do when it looks bad."""
    panels = panels_of(name)
    titles = [panel["title"] for panel in panels]
    assert sorted(set(titles)) == sorted(titles)
    for panel in panels:
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert 60 < len(panel["description"]), panel["title"]
        assert set() == {one["id"] for one in panel.get("transformations", [])} - TRANSFORMATIONS


@pytest.mark.parametrize("name", DASHBOARDS)
def test_what_a_panel_points_to_exists(name: str) -> None:
    """Alerts, other panels and variables that are named anywhere on a dashboard are there."""
    titles = {panel["title"] for file in DASHBOARDS for panel in panels_of(file)}
    variables = VARIABLES | {one["name"] for one in read_dashboard(name)["templating"]["list"]}
    for panel in panels_of(name):
        words = panel["description"]
        assert set() == set(re.findall(r"runbook (\w+)", words)) - set(alerts()), panel["title"]
        assert set() == set(re.findall(r"“([^”]+)”", words)) - titles, panel["title"]
        used = {name for target in panel["targets"] for name in re.findall(r"\$\{?(\w+)", target["expr"])}
        assert set() == used - variables, panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_choice_asks_for_those_before_it(name: str) -> None:
    """What a choice is narrowed by stands to its left; nothing else can be put in."""
    before: set[str] = set()
    for one in read_dashboard(name)["templating"]["list"]:
        assert set() == set(re.findall(r"\$\{?(\w+)", json.dumps(one["query"]))) - before, one["name"]
        before.add(one["name"])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_cover_each_other(name: str) -> None:
    """Panels lie side by side within 24 columns, with numbers and a uid that stay."""
    dashboard = read_dashboard(name)
    assert dashboard["uid"] == f"pfl-{Path(name).stem}"
    assert list(range(1, len(dashboard["panels"]) + 1)) == [panel["id"] for panel in dashboard["panels"]]
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert 24 >= max(place["x"] + place["w"] for place in places)
    for one, other in combinations(places, 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)


def test_what_is_asked_for_is_told() -> None:
    """Every number on a dashboard or in a rule is one that a program declares, or a rule records."""
    told = {name for number in declared() for name in exposed(number)} | set(recorded())
    for asked in every_query():
        assert set() == names_in(asked.expr) - told, asked
        assert set() == set(re.findall(r"\b(?:process|python)_\w+", asked.expr)) - LIBRARY, asked
    for choice in every_choice():
        assert set() == names_in(choice.series) - told, choice
    assert set() == names_in(re.sub(r"- (record|alert): \S+", "", rules())) - told


def test_what_is_told_is_asked_for() -> None:
    """Every number a program declares is on a dashboard: as it is, or in a recorded one that is on a dashboard."""
    shown = on_dashboards()
    assert [] == [number.name for number in declared() if not exposed(number) & shown]


def test_what_is_recorded_is_asked_for() -> None:
    """No rule records what nothing reads."""
    uses = re.sub(r"- record: \S+", "", rules()) + " ".join(asked.expr for asked in every_query())
    assert set() == set(recorded()) - names_in(uses)


def test_the_runbook_knows_the_panels() -> None:
    """A panel that the runbook sends its reader to is on the dashboard it names."""
    text = re.sub(r"\s+", " ", (PROMETHEUS / "runbook.md").read_text())
    named = re.findall(r'\*(Federation|Site)\*,(?: panel)? "([^"]+)"', text)
    assert 5 <= len(named)
    titles = {name: {panel["title"] for panel in panels_of(f"{name.lower()}.json")} for name, _ in named}
    assert [] == [(name, panel) for name, panel in named if panel not in titles[name]]


def test_a_dashboard_is_always_written_alike() -> None:
    """The same data make the same bytes."""
    for dashboard in MADE.values():
        assert write(dashboard) == write(dashboard)
