"""Results as tables for people, and a command's options as settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from pathlib import Path
from typing import Any  # a command's words are of any type until they are settled

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from pfl_common.app.config import layered, settle
from pfl_common.errors import SettingError
from pfl_common.identity import site_name
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import WAITING, Result
from pfl_server.run.setting_checks import add_method_settings, check_words
from pfl_server.settings import ServerSettings

_RULES = 3
"""Characters beside each column of a table: two blanks and a line."""


def server_settings(
    given: Mapping[str, Any], *, folders: Sequence[Path], state: Path
) -> tuple[ServerSettings, RunSpec | None]:
    """Settings of a coordinator for these folders, and the specification to follow if one was named."""
    names = {field.name for field in fields(ServerSettings)}
    flags = {name: value for name, value in given.items() if name in names}
    values = layered(ServerSettings, flags, given["config"], prefix="PFL_")
    values = add_method_settings(values, None, given["set_"] or ())
    values = WAITING | values | {"sites": len(folders), "state": state}
    pinned = None
    if given["spec"] is not None:
        pinned = _read_spec(given["spec"])
        _check_roster(pinned, folders)
        values["method"] = pinned.method
    settings = settle(ServerSettings, values, what="simulate")
    check_words(settings)
    settings.asks().check_roster(map(site_name, folders))
    return settings, pinned


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


def show_result(result: Result, console: Console) -> None:
    """A simulation's tables: its sites, and those that came after the end."""
    tables = result.tables()
    show_sites(tables["accuracy"], console)
    if "newcomers" in tables:
        console.print(
            "Sites that came after the end: as the shared state came (pre), and fitted to it (post)"
        )
        show_sites(tables["newcomers"], console)


def show_sites(table: Mapping[str, Mapping[str, float]], console: Console) -> None:
    """Accuracy per site after the last round: what counts most first, and as many columns as there is room for."""
    measures = sorted({measure for row in table.values() for measure in row}, key=_rank)
    first = 1 + _RULES + max(map(len, ("site", *table)))
    ends = list(accumulate(map(_weigh, measures), initial=first))
    fitting = max(1, sum(end <= console.width for end in ends[1:]))
    # Wider than the terminal if one column is: a name that is cut is no name.
    shown = Table(width=ends[min(fitting, len(measures))])
    shown.add_column("site", no_wrap=True)
    for measure in measures[:fitting]:
        shown.add_column(_title(measure), no_wrap=True, justify="right")
    for site, row in sorted(table.items()):
        shown.add_row(site, *(f"{row[m]:.3f}" if m in row else "" for m in measures[:fitting]))
    console.print(shown)
    if len(measures) > fitting:
        console.print(f"{len(measures) - fitting} more in a wider terminal; all of them with --json")


def _rank(measure: str) -> tuple[bool, bool, bool, str]:
    """The test accuracies of the whole model are what is asked for, the shifted one second; then those of its parts."""
    tested, shifted = (f"/{part}/" in f"/{measure}/" for part in ("test", "shifted"))
    whole = measure.endswith("/combined")
    return not (tested or (shifted and whole)), not whole, not tested, measure


def _title(measure: str) -> str:
    """`pre/test/combined` in as little width as possible: one word above the other."""
    return measure.replace("/", "\n")


def _weigh(measure: str) -> int:
    """How wide a column is."""
    return max(len("0.000"), *map(len, measure.split("/"))) + _RULES
