"""Decides whether a start goes on with the unfinished run in its state folder: it must ask for the same settings.

With others it is refused in words, unless `--new-run` leaves that run behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import structlog

from pfl_common.errors import StateError
from pfl_common.spec.rules import MAJORITY
from pfl_server.settings import ServerSettings
from pfl_server.store.journal import Journal

ANOTHER = "end it first (pfl stop), or choose another --seed"
QUORUM_BEFORE = 0.5
"""What a run waited for when nobody said it, before `--classes` was a setting."""
MOST_SAID = 20
"""Of a list no more is told: the words of texts are thousands."""

log = structlog.get_logger("pfl.runs")


def text_to_go_on_with(folder: Path, journal: Journal, settings: ServerSettings) -> str | None:
    """The specification of a run, if these settings ask for it and not for another."""
    # A setting that the release which began the run did not have yet was not asked for in any other way.
    unsaid = json.loads(json.dumps(ServerSettings().run_part()))
    text, asked = journal.spec(), unsaid | (said := json.loads((folder / "asked.json").read_text()))
    wanted = json.loads(json.dumps(settings.run_part()))
    if "classes" not in said and said.get("quorum") == QUORUM_BEFORE and wanted["quorum"] == MAJORITY:
        # Both are the default of their release: the same command after an upgrade asks for the same run.
        asked["quorum"] = MAJORITY
    if "validation" not in said and wanted["validation"] == 0:
        # That release held nothing back; whoever says so now asks for the same run.
        asked["validation"] = 0
    changed = _tell_changes(asked, wanted)
    over = journal.status()[0] not in ("running", "failed")
    # The same command once more, after a kill: it is this run that it asked for.
    begun_so = asked.get("new_run") and not (changed or over)
    if text is None or (settings.new_run and not begun_so) or (over and changed):
        if text is not None and not over:
            log.warning("an unfinished run is left behind", run=folder.name, after_round=_last_of(journal))
        return None
    if settings.new_run and journal.rounds():
        log.info(
            "--new-run has begun this run already, it goes on", run=folder.name, to_begin_another=ANOTHER
        )
    if changed:
        raise StateError(
            f"run {folder.name} in {folder.parent.parent} is unfinished; its settings were others: {changed}",
            expected="the settings it was begun with",
            advice="start with those settings to go on, or with --new-run to begin another run",
        )
    return text


def _last_of(journal: Journal) -> int:
    return max(journal.committed(), default=0)


def _tell_changes(asked: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    """Each setting that is another now, with both values, and a method's own settings one by one."""
    told = []
    for name, now in sorted(wanted.items()):
        was = asked.get(name)
        if was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            told += [
                f"set {one} was {_say(was.get(one))}, now {_say(now.get(one))}"
                for one in sorted(was.keys() | now.keys())
                if (one in was, was.get(one)) != (one in now, now.get(one))
            ]
        else:
            told.append(f"{name} was {_say(was)}, now {_say(now)}")
    return "; ".join(told)


def _say(value: object) -> str:
    """A setting's value as it is typed."""
    if value is None or value == "":
        return "not given"
    if isinstance(value, list) and len(value) > MOST_SAID:
        return f"{json.dumps(value[:MOST_SAID])[:-1]}, ... {len(value)} in all]"
    return value if isinstance(value, str) else json.dumps(value)
