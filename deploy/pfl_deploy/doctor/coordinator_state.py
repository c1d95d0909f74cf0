"""Checks the state folder of a coordinator that does not run, without changing anything in it."""

from __future__ import annotations

import shutil
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from pfl_common.files import locks
from pfl_common.identity import Authority, federation_id
from pfl_common.identity.authority import PUBLIC_FILE
from pfl_common.identity.certificates import load_certificates
from pfl_common.identity.key_place import AUTHORITY_FILE, check_key_files
from pfl_common.spec.run import RunSpec
from pfl_deploy.doctor.machine import look_at_room
from pfl_deploy.doctor.result import Check, error, guarded, ok, warning
from pfl_server.settings import ServerSettings
from pfl_server.store.checkpoints import read_note
from pfl_server.store.journal_check import find_damage
from pfl_server.store.journal_migration import check_version

DRAFT = ".draft"
"""Ends the name of a run that was never begun."""
_ABOUT = "coordinator's state"
_COPY = "bring the folder back from a copy, or begin another run: pfl-server --new-run with another --seed"


def examine(state: Path) -> Iterator[Check]:
    """The federation's authority, the disk, the ports, and each run's journal and checkpoints."""
    yield ok(_ABOUT, f"{state} is a coordinator's state folder")
    yield look_at_room(f"{_ABOUT}, disk", state)
    yield from guarded(f"{_ABOUT}, authority", partial(_authority, state / "federation"))
    lock = state / "lock"
    if lock.exists() and locks.is_held(lock):
        words = "a pfl-server is at work here: its runs are not read meanwhile, pfl status tells of them"
        yield ok(_ABOUT, words)
        return
    yield from look_at_ports(ServerSettings())
    yield from guarded(_ABOUT, partial(_runs, state))


def _authority(folder: Path) -> Iterator[Check]:
    about, now = f"{_ABOUT}, authority", datetime.now(UTC)
    if not folder.exists():
        advice = f"a simulation has none; for pfl-server bring {folder} back from a copy, or its sites are invited anew"
        yield warning(about, "there is none", advice=advice)
        return
    for keys in (folder, folder.parent / "invitations"):
        check_key_files(keys)
    if not (folder / AUTHORITY_FILE).exists() and (folder / PUBLIC_FILE).exists():
        yield ok(about, "its private keys lie elsewhere, or a passphrase locks them: they are not looked at")
        ca_pem = (folder / PUBLIC_FILE).read_bytes()
    else:
        ca_pem = Authority.open(folder).ca_pem
    certificate = load_certificates(ca_pem, where=str(folder))[0]
    if now < certificate.not_valid_before_utc:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M}"
        words = f"begins at {begins} UTC, and here it is {now:%Y-%m-%d %H:%M} UTC"
        yield error(about, words, advice="set this machine's clock (look at it with: date -u)", code=75)
    elif now > certificate.not_valid_after_utc:
        words = f"ended on {certificate.not_valid_after_utc:%Y-%m-%d}"
        yield error(
            about, words, advice="begin a new federation: another --state, and new invitations", code=2
        )
    else:
        yield ok(
            about, f"federation {federation_id(ca_pem)}, until {certificate.not_valid_after_utc:%Y-%m-%d}"
        )


def look_at_ports(settings: ServerSettings) -> Iterator[Check]:
    """Whether the ports that a pfl-server would take are free; no coordinator of this folder has them now."""
    flags = {"port": settings.port, "enrol-port": settings.enrol_port, "http-port": settings.http_port}
    taken = {flag: port for flag, port in flags.items() if port and not is_free(port)}
    for flag, port in taken.items():
        advice = f"end the program that has it (ss -ltnp shows which), or start with --{flag} NUMBER"
        yield warning(
            f"port {port}", "another program has it, and pfl-server takes it unless told", advice=advice
        )
    if not taken:
        yield ok("ports", f"{', '.join(map(str, flags.values()))} are free for pfl-server")


def is_free(port: int) -> bool:
    """Whether a program could listen at a port of this machine."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _runs(state: Path) -> Iterator[Check]:
    folders = [run for run in sorted((state / "runs").glob("*")) if run.is_dir() and run.suffix != DRAFT]
    current = state / "current"
    if current.is_file() and (name := current.read_text().strip()) and not (state / "runs" / name).is_dir():
        advice = f"bring that folder back, or remove {current} to begin another run"
        yield error(_ABOUT, f"it goes on with run {name}, which is not there", advice=advice, code=4)
    if not folders:
        yield ok(_ABOUT, "no run has been begun here")
    for folder in folders:
        yield from guarded(f"run {folder.name}", partial(_run, folder))


def _run(folder: Path) -> Iterator[Check]:
    about, journal = f"run {folder.name}", folder / "journal.sqlite"
    with TemporaryDirectory(prefix="pfl-doctor-") as place:
        # A copy: SQLite writes into a journal that was being written when its program ended, only to read it.
        copy = Path(place) / journal.name
        for file in folder.glob(journal.name + "*"):
            shutil.copyfile(file, copy.with_name(file.name))
        if why := find_damage(copy):
            yield error(about, f"its journal is damaged: {why}", advice=_COPY, code=4)
            return
        with closing(sqlite3.connect(copy)) as db:
            check_version(db, journal)
            rows = db.execute("select spec, status from run").fetchall()
            committed = (
                db.execute("select max(round) from attempt where status = 'committed'").fetchone()[0] or 0
            )
    if not rows:
        yield warning(about, "its journal holds no run", advice=_COPY)
        return
    yield from _specification(about, folder, rows[0][0])
    yield from _checkpoints(about, folder, committed=committed)
    yield ok(about, f"{rows[0][1]}, {committed} rounds committed, its journal is whole")


def _specification(about: str, folder: Path, text: str) -> Iterator[Check]:
    try:
        spec = RunSpec.from_json(text)
    except ValidationError as failed:
        words = f"its specification has {failed.error_count()} things that this release does not know"
        yield error(about, words, advice="use the release that began the run, or a later one", code=4)
        return
    if spec.id != folder.name:
        advice = "bring back the folder that belongs there, and move this one away"
        yield error(about, f"the folder holds another run, {spec.id}", advice=advice, code=4)


def _checkpoints(about: str, folder: Path, *, committed: int) -> Iterator[Check]:
    """A run goes on from the newest checkpoint that is whole; before its first round there is none."""
    notes = sorted((folder / "checkpoints").glob("round-*.json"))
    broken = [note.stem for note in notes if not _is_whole(note)]
    if committed and notes and len(broken) == len(notes):
        yield error(about, f"no checkpoint is whole: {', '.join(broken)}", advice=_COPY, code=4)
    elif broken:
        advice = "the run goes on from the other one by itself; look at this disk's health"
        yield warning(about, f"the checkpoint {broken[0]} is damaged", advice=advice)


def _is_whole(note: Path) -> bool:
    try:
        found = read_note(note)
        return found is not None and found.is_whole(note.with_suffix(".safetensors"))
    except OSError:
        return False
