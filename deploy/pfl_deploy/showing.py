"""Results as a person reads them, and the words of a command as settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any  # a command's words are of any type until they are settled

from rich.console import Console
from rich.table import Table

from pfl_common.config import layered, parse_pairs, settle
from pfl_common.errors import SettingError
from pfl_common.run import RunSpec
from pfl_server.settings import ServerSettings


def server_settings(
    given: Mapping[str, Any], *, folders: Sequence[Path], state: Path
) -> tuple[ServerSettings, RunSpec | None]:
    """Settings of a coordinator for these folders, and the specification to follow if one was named."""
    names = {field.name for field in fields(ServerSettings)}
    flags = {name: value for name, value in given.items() if name in names}
    flags["set"] = parse_pairs(given["set_"]) if given["set_"] is not None else None
    values = layered(ServerSettings, flags, given["config"], prefix="PFL_")
    values |= {"sites": len(folders), "state": state}
    pinned = None
    if given["spec"] is not None:
        pinned = RunSpec.from_json(Path(given["spec"]).read_text())
        values["method"] = pinned.method
        if len(pinned.roster) != len(folders):
            raise SettingError(
                f"the specification has {len(pinned.roster)} sites, --data has {len(folders)} folders",
                expected=f"the data folders of {', '.join(pinned.roster)}",
            )
    return settle(ServerSettings, values, what="simulate"), pinned


def show_sites(table: Mapping[str, Mapping[str, float]], console: Console) -> None:
    """Accuracy per site after the last round."""
    measures = sorted({measure for row in table.values() for measure in row})
    shown = Table("site", *measures)
    for site, row in sorted(table.items()):
        shown.add_row(site, *(f"{row[m]:.3f}" if m in row else "" for m in measures))
    console.print(shown)


def as_markdown(table: Mapping[str, Any]) -> str:
    """A comparison as a Markdown table, in percent."""
    columns = list(next(iter(table.values()))["test"])
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in table.items():
        cells = [f"{100 * row['test'][c]['mean']:.1f} ± {100 * row['test'][c]['std']:.1f}" for c in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
