"""A dashboard as plain data, and as JSON for Grafana 11.2 and newer.

A panel says what it shows and what to do when it looks bad; everything a person would otherwise set by hand for each
panel (colours, legends, how lines are drawn) is decided here, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias  # Any: Grafana's JSON, whose shape its own schema checks

Json: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["stat", "timeseries", "table", "bargauge", "state-timeline", "xychart"]

SCHEMA_VERSION = 39
"""That of Grafana 11.0: later ones read it and bring it up to date."""
PLUGIN_VERSION = "11.6.0"
"""As which version's panels are to be read: without it, XY charts are taken for those before 11.1 and rewritten."""
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
CLEAR = "transparent"
"""Above the last step of a panel with lines: then Grafana draws the step in the colour from below it."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

_LEGEND = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
_TOOLTIP = {"mode": "multi", "sort": "desc"}
_REDUCE = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[Kind, Json] = {
    "timeseries": {"legend": _LEGEND, "tooltip": _TOOLTIP},
    "stat": {
        "reduceOptions": _REDUCE,
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "bargauge": {
        "reduceOptions": _REDUCE,
        "displayMode": "basic",
        "orientation": "horizontal",
        "valueMode": "color",
        "namePlacement": "auto",
        "sizing": "auto",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "maxVizHeight": 300,
        "showUnfilled": True,
        "legend": {**_LEGEND, "showLegend": False},
    },
    "table": {"showHeader": True, "frameIndex": 0, "cellHeight": "sm"},
    "state-timeline": {
        "legend": {**_LEGEND, "showLegend": False},
        "tooltip": _TOOLTIP,
        "mergeValues": True,
        "showValue": "never",
        "rowHeight": 0.8,
    },
    "xychart": {
        "legend": _LEGEND,
        "tooltip": {"mode": "single", "sort": "none"},
        "mapping": "auto",
        "series": [],
    },
}


@dataclass(frozen=True)
class Query:
    """A query to Prometheus; `once` asks for the present only, `rows` for a table with one row per series."""

    expr: str
    legend: str = ""
    once: bool = False
    rows: bool = False


@dataclass(frozen=True)
class Look:
    """The ways in which a panel differs from others of its kind."""

    height: int = 8
    steps: tuple[tuple[float, str], ...] = ()
    """From which value on which colour holds; before the first it is the one of `base`."""
    base: str = GREEN
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    stacked: bool = False
    bars: bool = False
    names: bool = False
    """Show the series' name in place of its value: for states."""
    empty: str = ""
    """What stands there while there is nothing to show, where that is no fault."""
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()
    options: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """One panel: its content, its unit, and what to do when it looks bad."""

    kind: Kind
    title: str
    words: str
    unit: str
    queries: tuple[Query, ...]
    width: int
    look: Look = Look()


@dataclass(frozen=True)
class Row:
    """Panels under one heading, side by side and then in further lines, 24 columns wide."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A choice above the panels: values of a label, fixed words, or free text."""

    name: str
    label: str
    query: str
    kind: Literal["query", "custom", "textbox"] = "query"
    many: bool = False
    chosen: str = ""
    words: str = ""


@dataclass(frozen=True)
class Dashboard:
    """A whole dashboard: its rows, variables and title."""

    uid: str
    title: str
    words: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    since: str = "now-6h"


def by_name(name: str, **properties: object) -> Json:
    """An override for the field of this name; `custom_` begins what belongs to the kind of panel."""
    return _override("byName", name, properties)


def by_pattern(pattern: str, **properties: object) -> Json:
    """The same for all fields in whose name this is found: a run's name stands behind the other words."""
    return _override("byRegexp", f"/{pattern}/", properties)


def paint(pattern: str, color: str) -> Json:
    """A colour of their own for all such lines: then all others need one too, or the palette gives it to them."""
    return by_pattern(pattern, color={"mode": "fixed", "fixedColor": color})


def make_thresholds(base: str, steps: Sequence[tuple[float, str]]) -> Json:
    """The colour below all values, and from which value on which other one holds."""
    above = [{"color": color, "value": value} for value, color in steps]
    return {"mode": "absolute", "steps": [{"color": base, "value": None}, *above]}


def _override(matcher: str, name: str, properties: Mapping[str, object]) -> Json:
    made = [{"id": key.replace("custom_", "custom."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": matcher, "options": name}, "properties": made}


def write(dashboard: Dashboard) -> str:
    """The file Grafana reads: always the same for the same dashboard."""
    made = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.words,
        "tags": ["pfl"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": dashboard.since, "to": "now"},
        "links": [_links()],
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": _lay_out(dashboard.rows),
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _links() -> Json:
    return {
        "type": "dashboards",
        "title": "pfl",
        "tags": ["pfl"],
        "asDropdown": False,
        "icon": "external link",
        "includeVars": False,
        "keepTime": True,
        "targetBlank": False,
        "tooltip": "",
        "url": "",
    }


def _source() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "refresh": 1,
    }


def _variable(variable: Variable) -> Json:
    made: Json = {"type": variable.kind, "name": variable.name, "label": variable.label}
    if variable.words:
        made["description"] = variable.words
    if variable.kind == "query":
        made |= {
            "datasource": DATASOURCE,
            "query": {"query": variable.query, "refId": variable.name},
            "refresh": 2,
            "sort": 2,
        }
    else:
        made["query"] = variable.query
    if variable.many:
        made |= {"multi": True, "includeAll": True, "allValue": ".*"}
        made["current"] = {"text": ["All"], "value": ["$__all"]}
    elif variable.chosen:
        made["current"] = {"text": variable.chosen, "value": variable.chosen}
    return made


def _lay_out(rows: Sequence[Row]) -> list[Json]:
    """Panels in reading order: a row is full at 24 columns, the next begins below the tallest of it."""
    made: list[Json] = []
    top = 0
    for row in rows:
        made.append(_heading(len(made) + 1, row.title, top))
        left, top, tallest = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > 24:
                left, top, tallest = 0, top + tallest, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.look.height}
            made.append({"id": len(made) + 1, "gridPos": place, **_panel(panel)})
            left, tallest = left + panel.width, max(tallest, panel.look.height)
        top += tallest
    return made


def _heading(number: int, title: str, top: int) -> Json:
    place = {"x": 0, "y": top, "w": 24, "h": 1}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}


def _panel(panel: Panel) -> Json:
    made: Json = {
        "type": panel.kind,
        "pluginVersion": PLUGIN_VERSION,
        "title": panel.title,
        "description": panel.words,
        "datasource": DATASOURCE,
        "targets": [_target(panel.kind, place, query) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(panel.look.overrides)},
        "options": _OPTIONS[panel.kind] | _names(panel.look) | panel.look.options,
    }
    if panel.look.transformations:
        made["transformations"] = list(panel.look.transformations)
    return made


def _target(kind: Kind, place: int, query: Query) -> Json:
    # A single figure is that of now: over time, a state that has passed would be shown beside the one that holds.
    once = query.once or kind in ("stat", "bargauge")
    made: Json = {
        "refId": chr(ord("A") + place),
        "datasource": DATASOURCE,
        "expr": query.expr,
        "editorMode": "code",
        "instant": once,
        "range": not once,
        "format": "table" if query.rows else "time_series",
    }
    return made | ({"legendFormat": query.legend} if query.legend else {})


def _defaults(panel: Panel) -> Json:
    look = panel.look
    made: Json = {
        "unit": panel.unit,
        "color": {"mode": "palette-classic" if panel.kind in ("timeseries", "xychart") else "thresholds"},
        "thresholds": make_thresholds(look.base, look.steps),
        "custom": _drawn(panel.kind, look),
    }
    for name, value in (("min", look.low), ("max", look.high), ("decimals", look.decimals)):
        if value is not None:
            made[name] = value
    return made | ({"noValue": look.empty} if look.empty else {})


def _drawn(kind: Kind, look: Look) -> Json:
    if kind == "timeseries":
        return {
            "drawStyle": "bars" if look.bars else "line",
            "lineWidth": 1 if look.bars else 2,
            "fillOpacity": 60 if look.bars or look.stacked else 0,
            "showPoints": "auto",
            "spanNulls": False,
            "stacking": {"mode": "normal" if look.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if look.steps else "off"},
        }
    if kind == "xychart":
        return {"show": "points+lines", "pointSize": {"fixed": 4}, "lineWidth": 1}
    return {"fillOpacity": 80} if kind == "state-timeline" else {}


def _names(look: Look) -> Json:
    return {"textMode": "name"} if look.names else {}
