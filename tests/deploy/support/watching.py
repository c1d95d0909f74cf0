"""What of ours is watched, as its files say it: dashboards, alert rules, the numbers both programs declare."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pfl_client.daemon import exporter as of_site
from pfl_common.metric import Number
from pfl_server.status import exporter as of_coordinator

DEPLOY = Path(__file__).parents[3] / "deploy"
PROMETHEUS, GRAFANA = DEPLOY / "prometheus", DEPLOY / "grafana"
DASHBOARDS = ("federation.json", "site.json", "comparison.json")
RULES = PROMETHEUS / "rules" / "pfl.rules.yaml"
ALERTS = PROMETHEUS / "rules" / "pfl.alerts.yaml"
RULE_TESTS = sorted((PROMETHEUS / "rules" / "tests").glob("*.yaml"))

_ENDINGS = {"counter": ("_total",), "gauge": ("",), "summary": ("_sum", "_count"), "info": ("_info",)}


@dataclass(frozen=True)
class Asked:
    """One query of one panel."""

    dashboard: str
    panel: str
    ref: str
    expr: str
    once: bool


@dataclass(frozen=True)
class Choice:
    """A choice above a dashboard's panels: the values of a label on some series, or words that are among them."""

    dashboard: str
    name: str
    series: str
    label: str
    words: tuple[str, ...] = ()


def read_dashboard(name: str) -> dict[str, Any]:
    """A dashboard's file."""
    return json.loads((GRAFANA / "dashboards" / name).read_text(encoding="utf-8"))


def panels_of(name: str) -> list[dict[str, Any]]:
    """A dashboard's panels without the headings."""
    return [panel for panel in read_dashboard(name)["panels"] if panel["type"] != "row"]


def every_query() -> Iterator[Asked]:
    """What all panels ask."""
    for name in DASHBOARDS:
        for panel in panels_of(name):
            for target in panel["targets"]:
                yield Asked(name, panel["title"], target["refId"], target["expr"], target["instant"])


def every_choice() -> Iterator[Choice]:
    """What is chosen of labels above all panels."""
    for name in DASHBOARDS:
        asked = " ".join(one.expr for one in every_query() if one.dashboard == name)
        for one in read_dashboard(name)["templating"]["list"]:
            if one["type"] == "query":
                series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]["query"]).groups()
                yield Choice(name, one["name"], series, label)
            elif found := re.search(rf'(\w+)="\${one["name"]}"', asked):
                yield Choice(name, one["name"], f'{{{found[1]}!=""}}', found[1], (*one["query"].split(","),))


def exposed(number: Number) -> set[str]:
    """The names under which Prometheus has a number."""
    return {number.name + ending for ending in _ENDINGS[number.kind]}


def declared() -> tuple[Number, ...]:
    """All numbers of both programs."""
    return (*of_coordinator.NUMBERS, *of_site.NUMBERS)


def alerts() -> list[str]:
    """The alerts' names, in order."""
    return re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))


def recorded() -> dict[str, set[str]]:
    """What the recording rules make, and the numbers each is made of."""
    lines = (line.partition("#")[0] for line in RULES.read_text(encoding="utf-8").splitlines())
    _, *rules = re.split(r"- record: (\S+)", "\n".join(lines))
    return {name: names_in(expr) for name, expr in zip(rules[::2], rules[1::2], strict=True)}


def on_dashboards() -> set[str]:
    """What panels ask for, and what the rules make it of; an alert is no dashboard."""
    shown: set[str] = set()
    made_of, asked = recorded(), [*set().union(*(names_in(one.expr) for one in every_query()))]
    while asked:
        shown.add(name := asked.pop())
        asked += made_of.get(name, set()) - shown
    return shown


def names_in(text: str) -> set[str]:
    """Our numbers that are named in a query or a rule, recorded ones with their colons."""
    return set(re.findall(r"(?<![\w:])(?:[a-z]+:)?pfl_[a-z_]+(?::\w+)?", text))
