"""The runs of one state folder: begins one, finds the current one, keeps a second coordinator out."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog
from torch import Tensor

from pfl_common.errors import StateError
from pfl_common.files import atomic, locks
from pfl_common.randomness.seeded_draws import derive
from pfl_common.spec.run import ClientId, Description, RunSpec
from pfl_server.envelopes import Envelopes
from pfl_server.settings import ServerSettings
from pfl_server.store import begin_from, kept_weights, unfinished_run
from pfl_server.store.begin_from import Source, find_source
from pfl_server.store.journal import Journal
from pfl_server.store.journal_check import find_damage
from pfl_server.store.journal_migration import NewerJournal
from pfl_server.store.run_store import Books, open_books

DRAFT = ".draft"
"""Ends the name of a run's folder until the run is begun."""

log = structlog.get_logger("pfl.runs")


class Runs:
    """The folders `runs/<id>/`, each with a journal; `current` names the one begun last.

    A run is prepared whole under another name. It is begun at the moment `current` names it: a coordinator
    killed before has begun nothing, and what is left to do after that moment is done by the next one.
    """

    def __init__(self, state: Path, envelopes: Envelopes, *, federation: str = "") -> None:
        self._state, self._folder, self._envelopes = state, state / "runs", envelopes
        self._federation = federation
        self._journal: Journal | None = None
        make_state_folder(state)
        self._lock = _lock(state)
        try:
            self._tidy()
        except BaseException:
            os.close(self._lock)
            raise

    def unfinished(self, settings: ServerSettings) -> Books | None:
        """The run to go on with; None: begin one. Other settings in mid-run are an error, not a surprise."""
        folder = self._current()
        if folder is None:
            return None
        if why := find_damage(folder / "journal.sqlite"):
            if not settings.new_run:
                raise _damaged(folder, why)
            log.warning("a damaged run is left as it is", run=folder.name, why=why)
            return None
        if (journal := self._open_known(folder, settings)) is None:
            return None
        try:
            text = unfinished_run.text_to_go_on_with(folder, journal, settings)
        except StateError:
            journal.close()
            raise
        if text is None:
            journal.close()
            return None
        spec = RunSpec.from_json(text)
        if spec.id != folder.name:
            journal.close()
            raise StateError(
                f"the folder {folder} holds run {spec.id}",
                expected=f"run {folder.name}",
                advice="bring back the folder that belongs there, or begin another run: --new-run with another --seed",
            )
        return open_books(folder, spec, journal, self._envelopes)

    def next_id(self, settings: ServerSettings, sites: Iterable[ClientId]) -> str:
        """The name of the next run, if it has these settings and sites."""
        number = len([run for run in self._folder.iterdir() if run.suffix != DRAFT]) + 1
        # Not the name of another federation's run at the same Prometheus, nor of one with other settings that a
        # coordinator began before it lost its runs and counted anew.
        asked = json.dumps(settings.run_part(), sort_keys=True)
        mark = derive(self._federation, number, asked, *sorted(sites)) % 16**6
        return f"{settings.method}-{number:03d}-{mark:06x}"

    def source(self, name: str) -> Source:
        """The run that another is to begin from."""
        return find_source(self._folder, name)

    def adopt(
        self,
        spec: RunSpec,
        sites: Mapping[ClientId, Description],
        settings: ServerSettings,
        *,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Books:
        """Begin the very run that a specification pins, and write it down before anybody hears of it: with what its
        first model takes from weights.
        """
        folder = self._folder / spec.id
        if folder.exists():
            raise StateError(
                f"{self._state} already holds run {spec.id}",
                expected="a state folder without it",
                advice="name another folder, or start with the settings it was begun with to go on",
            )
        self._tidy()
        draft = self._prepare(folder.with_name(spec.id + DRAFT), spec, sites)
        if weights is not None:
            kept_weights.keep(draft, weights)
        asked = {**settings.run_part(), "new_run": settings.new_run}
        atomic.write(draft / "asked.json", json.dumps(asked))
        atomic.settle(self._folder)
        atomic.write(self._state / "current", spec.id)
        atomic.place(draft, folder)
        return open_books(folder, spec, self._open(folder, settings), self._envelopes)

    def close(self) -> None:
        """Let another coordinator have the folder, when all that was asked of the journal is on disk."""
        if self._journal is not None:
            self._journal.flush()
        os.close(self._lock)

    def _prepare(self, draft: Path, spec: RunSpec, sites: Mapping[ClientId, Description]) -> Path:
        draft.mkdir(mode=0o700)
        if spec.begins_from is not None:
            source = self.source(spec.begins_from.run)
            source.check(spec)
            begin_from.write(source, spec, draft, self._envelopes)
        journal = Journal(draft / "journal.sqlite")
        try:
            for site, description in sorted(sites.items()):
                journal.register(site, description.to_json(), late=False)
            journal.begin(spec.id, spec.to_json())
        finally:
            journal.close()
        return draft

    def _open_known(self, folder: Path, settings: ServerSettings) -> Journal | None:
        """None of a run of a newer release, which is left as it is if another run is asked for."""
        try:
            return self._open(folder, settings)
        except NewerJournal as error:
            if not settings.new_run:
                advice = f"{error.advice}; or begin another run with --new-run"
                raise StateError(error.seen, expected=error.expected, advice=advice) from None
            log.warning("a run of a newer release is left as it is", run=folder.name, why=error.seen)
            return None

    def _open(self, folder: Path, settings: ServerSettings) -> Journal:
        self._journal = Journal(folder / "journal.sqlite", durability=settings.durability)
        return self._journal

    def _tidy(self) -> None:
        """Finish, or clear away, what a coordinator was beginning when it was killed."""
        begun = self._named()
        for draft in self._folder.glob(f"*{DRAFT}"):
            if draft.stem == begun:
                atomic.place(draft, self._folder / begun)
            else:
                shutil.rmtree(draft)

    def _named(self) -> str:
        pointer = self._state / "current"
        return pointer.read_text().strip() if pointer.exists() else ""

    def _current(self) -> Path | None:
        if not (name := self._named()):
            return None
        if not (self._folder / name).is_dir():
            raise StateError(
                f"{self._state / 'current'} names run {name}, but {self._folder} does not hold it",
                expected="the folder of the run that was begun last",
                advice=f"put it back, or remove {self._state / 'current'} to begin another run",
            )
        return self._folder / name


def make_state_folder(state: Path) -> None:
    """The coordinator's private folder, with a place for runs."""
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        for folder in (state, state / "runs"):
            folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise StateError(
            f"the state folder {state} cannot be made: {error.strerror}", advice="name another with --state"
        ) from None
    for folder in (state, state / "runs"):
        _check_unshared(folder)


def _check_unshared(folder: Path) -> None:
    """What others may write is no memory: a journal or a checkpoint would be theirs."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise StateError(
            f"{folder} belongs to user {found.st_uid}",
            expected=f"it to belong to the user running this, {os.geteuid()}",
            advice=f"run as its owner, or: chown -R {os.geteuid()} '{folder}'",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StateError(
            f"{folder} has mode {stat.S_IMODE(found.st_mode):04o}, so others may write there",
            expected="mode 0700, or at most 0755",
            advice=f"if nobody else has written there: chmod go-w '{folder}'",
        )


def _damaged(folder: Path, why: str) -> StateError:
    return StateError(
        f"{folder / 'journal.sqlite'} is damaged: {why}",
        expected=f"the journal of run {folder.name}",
        advice=f"bring back a backup of the whole folder {folder.parent.parent}, or begin another run with --new-run",
    )


def _lock(state: Path) -> int:
    """Held as long as the process lives: the kernel lets go of it however the process ends."""
    handle = locks.take(state / "lock")
    if handle is None:
        raise StateError(
            f"another coordinator is using the state folder {state}",
            expected="one coordinator per state folder",
            advice="end the other program (Ctrl-C where it runs, or systemctl stop), "
            "or give this one a folder of its own with --state",
        )
    return handle
