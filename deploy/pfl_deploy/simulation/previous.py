"""Decides whether a kept simulated run may be served again: only for the same settings, data and code.

A run that is over and was made with others is left as it is, and a new one begins; one that is not over is an error
that names what has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pfl_client import data as site_data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import StateError
from pfl_common.spec.run import ClientId, Json, RunSpec
from pfl_deploy.operator.status_text import tell_names
from pfl_deploy.report.formatting import moment
from pfl_deploy.report.sources.coordinator import Record, read_record
from pfl_deploy.simulation.simulate import Result, name_sites, simulate
from pfl_server.run.specification import versions
from pfl_server.run.weights_fetching import digest_if_here
from pfl_server.settings import ServerSettings

DECIDING = {"code": "the product's code", "torch": "torch"}
"""Versions without which a run ends in other bytes, in words."""


@dataclass(frozen=True)
class Previous:
    """The run in a folder, and the changes since it was begun."""

    run: str
    over: bool
    ended: float
    """When it was trained (Unix time); 0: unknown."""
    changes: tuple[str, ...]

    def say_served(self) -> str:
        """That nothing was trained now."""
        when = f" on {moment(self.ended)}" if self.ended else ""
        return (
            f"run {self.run} is served again, nothing was trained now: it was trained{when} with the same settings, "
            "data and code (--new-run trains again)"
        )

    def say_left(self) -> str:
        """That another run begins, and why."""
        return f"run {self.run} is not served again: {'; '.join(self.changes)}. A new run begins"


@dataclass(frozen=True)
class Played:
    """A simulated run, just trained or kept from before."""

    result: Result
    served_again: bool
    trained: float
    """When it was trained (Unix time), if that was earlier."""
    instead_of: Previous | None = None
    """The run that was kept here and could not be served again."""

    def to_json(self) -> dict[str, Json]:
        """The command's JSON for it."""
        left = self.instead_of
        return {
            "run": self.result.spec.id,
            "served_again": self.served_again,
            "trained": moment(self.trained) if self.served_again and self.trained else None,
            "instead_of": {"run": left.run, "changed": list(left.changes)} if left else None,
        }


def play_or_serve(  # noqa: PLR0913  # what a simulation is asked for, and who is told of it
    settings: ServerSettings,
    folders: Sequence[Path],
    sites: Path,
    *,
    pinned: RunSpec | None = None,
    newcomers: Sequence[Path] = (),
    tell: Callable[[str], None],
) -> Played:
    """Play a federation, or serve the very run that is kept; which of the two is said."""
    previous = None if settings.new_run else look(settings.state, folders, settings, pinned)
    left = previous if previous and previous.over and previous.changes else None
    settings = decide(settings, previous)
    if left:
        tell(left.say_left())
    result = simulate(settings, folders, sites, pinned=pinned, newcomers=newcomers)
    served = previous is not None and previous.over and previous.run == result.spec.id
    if previous is not None and served:
        tell(previous.say_served())
    return Played(result, served, previous.ended if previous else 0.0, left)


def look(
    state: Path, folders: Sequence[Path], settings: ServerSettings, pinned: RunSpec | None = None
) -> Previous | None:
    """The run that was begun last in a coordinator's folder; None where there is none, or none that can be read: then
    the coordinator itself says what is wrong.
    """
    with suppress(OSError, StateError):
        record = read_record(state / "runs" / (state / "current").read_text().strip())
        asked = json.loads((record.folder / "asked.json").read_text())
        changes = _find_changes(record, folders, pinned) + _changed_weights(record, settings)
        over = record.status not in ("running", "failed")
        if over and not changes and _asked_other(asked, settings):
            changes = ["its settings were others"]
        return Previous(record.spec.id, over, record.ended, tuple(changes))
    return None


def decide(settings: ServerSettings, previous: Previous | None) -> ServerSettings:
    """The settings to go on with: a run that is over and was made with others makes room for a new one."""
    if previous is None or settings.new_run or not previous.changes:
        return settings
    if not previous.over:
        raise StateError(
            f"run {previous.run} in {settings.state} is unfinished, and {'; '.join(previous.changes)}",
            expected="what it was begun with",
            advice="bring that back to go on, or begin another run with --new-run",
        )
    return replace(settings, new_run=True)


def _asked_other(asked: Mapping[str, object], settings: ServerSettings) -> bool:
    wanted = json.loads(json.dumps(settings.run_part()))
    return any(asked.get(name, value) != value for name, value in wanted.items())


def _find_changes(record: Record, folders: Sequence[Path], pinned: RunSpec | None) -> list[str]:
    spec = record.spec
    found = []
    if pinned is not None and pinned.hash != spec.hash:
        found.append("--spec is another one")
    sites = name_sites(folders)
    if sorted(sites) != sorted(spec.roster):
        found.append(f"its sites were {tell_names(spec.roster)}, now {tell_names(sorted(sites))}")
    else:
        found += _changed_data(record, sites)
    now = versions()
    # A specification of another machine says so: a user who names it wants it played here.
    known = {} if pinned is not None else spec.versions
    found += [
        f"{words} has changed" for name, words in DECIDING.items() if known and known.get(name) != now[name]
    ]
    return found


def _changed_weights(record: Record, settings: ServerSettings) -> list[str]:
    """Of a file that is gone the run's folder has kept what was taken."""
    then, now = record.spec.weights, digest_if_here(settings)
    changed = then is not None and now not in ("", then.sha256, then.taken)
    return ["the file of --weights has changed"] if changed else []


def _changed_data(record: Record, sites: Mapping[ClientId, Path]) -> list[str]:
    """By what each site said when it came: the specification may be another machine's, with other fingerprints."""
    then = record.fingerprints
    if not any(then.values()):
        return ["its data were not noted (an older release made it)"]
    now = {site: site_data.fingerprint_of(DataFolder(path, site)) for site, path in sites.items()}
    changed = [site for site in sorted(sites) if then.get(site) != now[site]]
    return (
        [f"the data of {tell_names(changed)} {'have' if len(changed) > 1 else 'has'} changed"]
        if changed
        else []
    )
