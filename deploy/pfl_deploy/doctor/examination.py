"""Runs all checks one after the other and shows their results."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from pfl_client.settings import ClientSettings
from pfl_common.printable import printable
from pfl_deploy.doctor import coordinator_state, machine, reaching, sites
from pfl_deploy.doctor.policy import examine_policy
from pfl_deploy.doctor.recognition import recognise
from pfl_deploy.doctor.result import Check, error, exit_code, guarded

_COLOURS = {"ok": "green", "warning": "yellow", "error": "bold red"}
_WIDEST = 110


@dataclass(frozen=True)
class Asked:
    """The things to check."""

    data: Path | None = None
    join: Path | None = None
    server: str | None = None
    state: Path | None = None
    thing: Path | None = None
    """Any of the first three, or a coordinator's state: it is recognised by what lies in it."""


def examine(asked: Asked) -> Iterator[Check]:
    """Everything, in the order in which one would ask; with `--data` or `--join` these first."""
    if (thing := asked.thing) is not None:
        yield from guarded(str(thing), partial(_examine_thing, thing))
    state = ClientSettings(state=asked.state).state_folder
    if (data := asked.data) is not None:
        from pfl_deploy.doctor.data import examine_data  # torch

        yield from guarded("data", partial(examine_data, data))
    if (join := asked.join) is not None:
        yield from guarded(f"--join {join.name}", partial(reaching.examine_invitation, join))
    yield from guarded("this machine", partial(machine.examine, state))
    yield from guarded("coordinator", partial(reaching.examine_here, asked.server))
    look = coordinator_state if recognise(state) == "coordinator's state" else sites
    yield from guarded("sites", partial(look.examine, state))


def _examine_thing(thing: Path) -> Iterator[Check]:
    match recognise(thing):
        case "nothing":
            advice = "check the path; pfl doctor without one looks at this machine"
            yield error(str(thing), "is not there", advice=advice, code=2)
        case "data folder":
            from pfl_deploy.doctor.data import examine_data  # torch

            yield from examine_data(thing)
        case "policy":
            yield from examine_policy("this file", named=thing)
        case "invitation":
            yield from reaching.examine_invitation(thing)
        case "coordinator's state":
            yield from coordinator_state.examine(thing)
        case "site's folder":
            yield from sites.examine_site(thing.absolute())
        case "sites' state":
            yield from sites.examine(thing)


def report(asked: Asked, console: Console, *, as_json: bool) -> int:
    """Print each finding as it comes, or all of them for a program; gives the exit code."""
    found: list[Check] = []
    for check in examine(asked):
        found.append(check)
        if not as_json:
            show(check, console)
    if as_json:
        console.print_json(json.dumps(to_json(found)))
    else:
        console.print(conclude(found))
    return exit_code(found)


def show(check: Check, console: Console) -> None:
    """A line of the findings, and below it what to do."""
    width = min(_WIDEST, max(40, console.width))
    said = printable(f"{check.about}: {check.words}")
    lines = textwrap.wrap(said, width - 8, break_long_words=False, break_on_hyphens=False)
    level = (f"{check.level:<8}", _COLOURS[check.level])
    console.print(Text.assemble(level, "\n        ".join(lines)))
    for line in textwrap.wrap(
        printable(f"-> {check.advice}") if check.advice else "", width - 8, break_long_words=False
    ):
        console.print(Text(f"        {line}"))


def conclude(found: Sequence[Check]) -> str:
    """One sentence at the end."""
    counts = Counter(check.level for check in found)
    if not counts["warning"] and not counts["error"]:
        return "nothing is wrong."
    told = [f"{n} {word}{'s' if n > 1 else ''}" for word in ("error", "warning") if (n := counts[word])]
    return f"{' and '.join(told)}: see above."


def to_json(found: Sequence[Check]) -> dict[str, JsonValue]:
    """The same for a program."""
    rows: list[JsonValue] = [
        {name: value for name, value in asdict(check).items() if name != "code"} for check in found
    ]
    return {"exit_code": exit_code(found), "checks": rows}
