"""The runs of one state folder: begin one, find the one that is under way, keep a second coordinator out."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

from pfl_common.draws import derive
from pfl_common.errors import StateError
from pfl_common.run import ClientId, Description, RunSpec
from pfl_server.books import Books, open_books
from pfl_server.envelopes import Envelopes
from pfl_server.journal import Journal
from pfl_server.opening import freeze
from pfl_server.settings import ServerSettings


class Runs:
    """`runs/<id>/` each with a journal; `current` names the last one begun."""

    def __init__(self, state: Path, envelopes: Envelopes) -> None:
        self._state, self._envelopes = state, envelopes
        make_state_folder(state)
        self._lock = _lock(state)

    def unfinished(self, settings: ServerSettings) -> Books | None:
        """The run to go on with; None: begin one. Other settings in mid-run are an error, not a surprise."""
        folder = self._current()
        if folder is None or settings.new_run:
            return None
        asked = json.loads((folder / "asked.json").read_text())
        journal = Journal(folder / "journal.sqlite")
        text, (status, _) = journal.spec(), journal.status()
        same = asked == json.loads(json.dumps(settings.run_part()))
        if text is None or (status not in ("running", "failed") and not same):
            journal.close()
            return None
        if not same:
            changed = ", ".join(sorted(n for n, v in settings.run_part().items() if asked.get(n) != v))
            raise StateError(
                f"run {folder.name} in {self._state} is unfinished; its settings were others ({changed})",
                expected="the settings it was begun with",
                advice="start with those settings to go on, or with --new-run to begin another run",
            )
        return open_books(folder, RunSpec.from_json(text), journal, self._envelopes)

    def begin(self, settings: ServerSettings, sites: Mapping[ClientId, Description]) -> Books:
        """Freeze a new run with these sites and write it down before anybody hears of it."""
        number = len(list((self._state / "runs").iterdir())) + 1
        name = f"{settings.method}-{number:03d}-{derive(settings.seed, number, *sorted(sites)) % 16**4:04x}"
        return self.adopt(freeze(settings, sites, run=name), sites, settings)

    def adopt(self, spec: RunSpec, sites: Mapping[ClientId, Description], settings: ServerSettings) -> Books:
        """Begin the very run that a specification pins: another one's bytes can be reproduced with it."""
        folder = self._state / "runs" / spec.id
        if folder.exists():
            raise StateError(
                f"{self._state} already holds run {spec.id}",
                expected="a state folder without it",
                advice="name another folder, or start with the settings it was begun with to go on",
            )
        folder.mkdir(mode=0o700)
        journal = Journal(folder / "journal.sqlite")
        for site, description in sorted(sites.items()):
            journal.register(site, description.to_json(), late=False)
        journal.begin(spec.id, spec.to_json())
        (folder / "asked.json").write_text(json.dumps(settings.run_part()))
        _write_name(self._state / "current", spec.id)
        return open_books(folder, spec, journal, self._envelopes)

    def close(self) -> None:
        """Let another coordinator have the folder."""
        os.close(self._lock)

    def _current(self) -> Path | None:
        pointer = self._state / "current"
        return self._state / "runs" / pointer.read_text().strip() if pointer.exists() else None


def make_state_folder(state: Path) -> None:
    """The coordinator's private folder, with a place for runs."""
    try:
        (state / "runs").mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StateError(
            f"the state folder {state} cannot be made: {error.strerror}", advice="name another with --state"
        ) from None


def _write_name(pointer: Path, name: str) -> None:
    draft = pointer.with_suffix(".tmp")
    draft.write_text(name)
    os.replace(draft, pointer)


def _lock(state: Path) -> int:
    """Held as long as the process lives: the kernel lets go of it however the process ends."""
    handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StateError(
            f"another coordinator is using the state folder {state}",
            expected="one coordinator per state folder",
            advice="stop the other one (pfl stop), or give this one a folder of its own with --state",
        ) from None
    return handle
