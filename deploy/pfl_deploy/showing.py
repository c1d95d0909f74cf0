"""Results as a person reads them, and the words of a command as settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any  # a command's words are of any type until they are settled

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from pfl_common.config import layered, settle
from pfl_common.errors import SettingError
from pfl_common.identity import site_name
from pfl_common.run import RunSpec
from pfl_server.cli import add_method_settings
from pfl_server.settings import ServerSettings


def server_settings(
    given: Mapping[str, Any], *, folders: Sequence[Path], state: Path
) -> tuple[ServerSettings, RunSpec | None]:
    """Settings of a coordinator for these folders, and the specification to follow if one was named."""
    names = {field.name for field in fields(ServerSettings)}
    flags = {name: value for name, value in given.items() if name in names}
    values = layered(ServerSettings, flags, given["config"], prefix="PFL_")
    values = add_method_settings(values, None, given["set_"] or ())
    # In one process nobody is ever away, only slow: a busy machine must not change who is counted.
    values.setdefault("quorum", 1.0)
    values |= {"sites": len(folders), "state": state}
    pinned = None
    if given["spec"] is not None:
        pinned = _read_spec(given["spec"])
        _check_roster(pinned, folders)
        values["method"] = pinned.method
    return settle(ServerSettings, values, what="simulate"), pinned


def _read_spec(file: Path) -> RunSpec:
    try:
        return RunSpec.from_json(file.read_bytes())
    except OSError as error:
        raise SettingError(
            f"--spec {file} cannot be read: {error.strerror}",
            expected="a run's spec.json, as each site keeps it",
            advice="look below the site's state folder: runs/RUN/spec.json",
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingError(
            f"--spec {file} is no specification of a run: {first['msg']}",
            expected="a run's spec.json, unchanged, made by this release",
            advice="take the file from a site's state folder: runs/RUN/spec.json",
        ) from None


def _check_roster(spec: RunSpec, folders: Sequence[Path]) -> None:
    there = sorted(site_name(folder) for folder in folders)
    if there != sorted(spec.roster):
        raise SettingError(
            f"the specification is for {', '.join(spec.roster)}; --data holds {', '.join(there)}",
            expected="one data folder for each of its sites, called alike",
            advice="name the folder that holds these sites' folders and nothing else",
        )


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
