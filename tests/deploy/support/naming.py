"""Which names a panel's data have by the time Grafana draws them, and what the panel names that they do not have.

A line has its legend. A table has a column for the moment, one for each label and one for the value, which is called
after its query where there are several; then transformations, of which those are known here that our panels use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Panel: TypeAlias = dict[str, Any]  # as Grafana's JSON has it
Drawn: TypeAlias = dict[str, list[dict[str, str]]]
"""The labels of all series that a panel's queries gave, by the query's letter."""
Columns: TypeAlias = dict[str, bool]
"""Columns by name, and whether each holds numbers."""

_LABEL = re.compile(r"{{\s*(\w+)\s*}}")


@dataclass
class Table:
    """What the first query gave, beside it what the others gave until it is merged, and the names that were in vain."""

    columns: Columns
    others: list[Columns]
    strays: list[str] = field(default_factory=list)

    def has(self, name: str, words: str) -> bool:
        """Whether there is such a column; if not, the name is a stray."""
        if name not in self.columns:
            self.strays.append(f"{words} {name!r}: there are {sorted(self.columns)}")
        return name in self.columns


def find_strays(panel: Panel, drawn: Drawn) -> list[str]:
    """What a panel names and its data do not have, in words."""
    (form,) = {target["format"] for target in panel["targets"]}
    if form == "table":
        return _of_table(panel, drawn)
    assert not panel.get("transformations"), f"{panel['title']}: lines are not transformed"
    return _of_lines(panel, drawn)


def find_twins(panel: Panel, drawn: Drawn) -> list[str]:
    """Lines to which the palette may give a colour that another one has of its own; what frames others is no line."""
    hidden, painted = _matched(panel, "custom.hideFrom"), _matched(panel, "color")
    names = {name for name in _name_lines(panel, drawn) if not hidden(name)}
    palette = sorted(name for name in names if not painted(name))
    return palette if len(palette) < len(names) else []


def _matched(panel: Panel, what: str) -> Callable[[str], bool]:
    """Whether an override that sets this is for a name."""
    setting = [
        one for one in panel["fieldConfig"]["overrides"] if what in {each["id"] for each in one["properties"]}
    ]
    patterns = [_pattern_of(one["matcher"]) for one in setting]
    return lambda name: any(re.search(pattern, name) for pattern in patterns)


def _pattern_of(matcher: dict[str, str]) -> str:
    wanted = matcher["options"]
    return {"byName": f"^{re.escape(wanted)}$", "byRegexp": wanted.strip("/")}[matcher["id"]]


def _name_lines(panel: Panel, drawn: Drawn) -> set[str]:
    return {
        _LABEL.sub(lambda found, of=labels: of.get(found[1], ""), target["legendFormat"])
        for target in panel["targets"]
        for labels in drawn[target["refId"]]
    }


def _of_lines(panel: Panel, drawn: Drawn) -> list[str]:
    strays = set[str]()
    for target in panel["targets"]:
        for labels in drawn[target["refId"]]:
            lacking = set(_LABEL.findall(target["legendFormat"])) - set(labels)
            strays |= {f"legend {name!r}: there are {sorted(labels)}" for name in lacking}
    return [*sorted(strays), *_of_overrides(panel, _name_lines(panel, drawn))]


def _of_overrides(panel: Panel, names: set[str]) -> Iterator[str]:
    for override in panel["fieldConfig"]["overrides"]:
        pattern = _pattern_of(override["matcher"])
        if not any(re.search(pattern, name) for name in names):
            yield f"override of {override['matcher']['options']!r}: there are {sorted(names)}"
        below = {one["value"] for one in override["properties"] if one["id"] == "custom.fillBelowTo"}
        yield from (f"filled below to {name!r}: there are {sorted(names)}" for name in below - names)


def _of_table(panel: Panel, drawn: Drawn) -> list[str]:
    first, *others = (_read(series, f" #{ref}" if 1 < len(drawn) else "") for ref, series in drawn.items())
    table = Table(first, others)
    for one in panel.get("transformations", []):
        _STEPS[one["id"]](table, **one["options"])
    if table.others:
        table.strays.append("several tables, and nothing merges them")
    if panel["type"] == "xychart":
        _lay_across(table, panel["options"]["series"])
    return [*table.strays, *_of_overrides(panel, set(table.columns))]


def _read(series: list[dict[str, str]], ending: str) -> Columns:
    labels = sorted({name for one in series for name in one})
    return {"Time": True, **dict.fromkeys(labels, False), f"Value{ending}": True}


def _merge(table: Table) -> None:
    labels = {name for name, number in table.columns.items() if not number}
    for other in table.others:
        # Rows become one where they agree in all they have in common: a label that only one side has would part them.
        differ = labels ^ {name for name, number in other.items() if not number}
        table.strays += [f"label {name!r} is not in all that is merged" for name in sorted(differ)]
        table.columns |= other
    table.others = []


def _organize(table: Table, *, excludeByName: dict[str, bool], renameByName: dict[str, str]) -> None:
    for name in excludeByName:
        if table.has(name, "leaves out"):
            del table.columns[name]
    for name, new in renameByName.items():
        if table.has(name, "renames"):
            table.columns[new] = table.columns.pop(name)


def _partition(table: Table, *, fields: list[str], keepFields: bool, naming: dict[str, bool]) -> None:
    assert (False, {"asLabels": False}) == (keepFields, naming), "only this way of it is read here"
    for name in fields:
        if table.has(name, "parts by") and table.columns.pop(name):
            table.strays.append(f"parts by {name!r}, which is no label")


_STEPS = {"merge": _merge, "organize": _organize, "partitionByValues": _partition}


def _lay_across(table: Table, series: list[Panel]) -> None:
    """Each axis of an XY chart is a column of numbers, and no label is left that should have parted its lines."""
    for one in series:
        matchers = [one[axis]["matcher"] for axis in ("x", "y")]
        for matcher in matchers:
            assert "byName" == matcher["id"]
            if table.has(matcher["options"], "axis") and not table.columns[matcher["options"]]:
                table.strays.append(f"axis {matcher['options']!r} is no number")
        if matchers[0] == matchers[1]:
            table.strays.append(f"both axes are {matchers[0]['options']!r}")
    table.strays += [f"label {name!r} parts no lines" for name, number in table.columns.items() if not number]
