"""What the doctor says of a coordinator's state folder: each thing that can be wrong, and nothing is changed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pfl_common.identity import Authority
from pfl_common.spec.run import Model, RunSpec
from pfl_deploy.doctor import coordinator_state, machine
from pfl_deploy.doctor.result import Check
from pfl_server.decisions.sampling import Draw
from pfl_server.settings import ServerSettings
from pfl_server.store.journal import Journal
from pfl_server.store.journal_migration import newest

SPEC = RunSpec("run-1", "fedavg", {}, Model("mlp", (1, 2, 2), ("a", "b")), ("a",), rounds=3, seed=0)
Break = Callable[[Path], object]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one run of two rounds, as a coordinator left it; all ports are free."""
    monkeypatch.setattr(coordinator_state, "is_free", lambda port: True)
    folder = tmp_path / "pfl-state"
    Authority.open_or_create(folder / "federation", now=datetime.now(UTC))
    run = folder / "runs" / SPEC.id
    journal = Journal(run / "journal.sqlite", durability="process")
    journal.begin(SPEC.id, SPEC.to_json())
    (run / "checkpoints").mkdir()
    for number in (1, 2):
        journal.open_attempt(number, ("a",), Draw(("a",), frozenset()), at=1.0)
        note = {"round": number, "sha256": hashlib.sha256(b"model").hexdigest(), "kept": {}}
        checkpoint(folder, number).write_bytes(b"model")
        checkpoint(folder, number).with_suffix(".json").write_text(json.dumps(note))
    journal.close()
    with closing(sqlite3.connect(run / "journal.sqlite")) as db, db:
        db.execute("update attempt set status = 'committed'")
    (folder / "current").write_text(SPEC.id)
    (folder / "lock").touch()
    return folder


def journal_of(state: Path) -> Path:
    return state / "runs" / SPEC.id / "journal.sqlite"


def write(state: Path, words: str, *given: object) -> None:
    """Behind the journal's back."""
    with closing(sqlite3.connect(journal_of(state))) as db, db:
        db.execute(words, given)


def look(state: Path) -> list[Check]:
    """Every finding but those that are well; and nothing has been changed."""
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    found = list(coordinator_state.examine(state))
    assert before == {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    return [check for check in found if check.level != "ok"]


def test_a_sound_folder(state: Path) -> None:
    """It is told what it is, whose, and how far its run is."""
    assert [] == look(state)
    said = " ".join(check.words for check in coordinator_state.examine(state))
    federation = Authority.open(state / "federation").federation_id
    for fact in (
        "a coordinator's state folder",
        federation,
        "7443, 7444, 7480 are free",
        "2 rounds committed",
    ):
        assert fact in said


def spoil(file: Path, *, start: int, content: bytes) -> None:
    with file.open("r+b") as out:
        out.seek(start)
        out.write(content)


def checkpoint(state: Path, number: int) -> Path:
    return state / "runs" / SPEC.id / "checkpoints" / f"round-{number:06d}.safetensors"


def become(state: Path, text: str) -> None:
    write(state, "update run set spec = ?", text)


@pytest.mark.parametrize(
    ("spoil_it", "level", "code", "words"),
    [
        pytest.param(
            lambda state: spoil(journal_of(state), start=0, content=b"x" * 100),
            "error", 4, "its journal is damaged", id="journal damaged",
        ),
        pytest.param(
            lambda state: journal_of(state).write_bytes(b""),
            "error", 4, "missing or empty", id="journal empty",
        ),
        pytest.param(
            lambda state: write(state, f"pragma user_version = {newest() + 1}"),
            "error", 4, "written by a newer release", id="newer schema",
        ),
        pytest.param(
            lambda state: become(state, json.dumps(json.loads(SPEC.to_json()) | {"later": 1})),
            "error", 4, "does not know", id="newer specification",
        ),
        pytest.param(
            lambda state: become(state, replace(SPEC, id="run-9").to_json()),
            "error", 4, "another run, run-9", id="another run's folder",
        ),
        pytest.param(
            lambda state: (state / "current").write_text("run-7"),
            "error", 4, "run-7, which is not there", id="current run gone",
        ),
        pytest.param(
            lambda state: checkpoint(state, 2).write_bytes(b"torn"),
            "warning", 1, "round-000002 is damaged", id="newest checkpoint torn",
        ),
        pytest.param(
            lambda state: [checkpoint(state, number).unlink() for number in (1, 2)],
            "error", 4, "no checkpoint is whole", id="no checkpoint",
        ),
        pytest.param(
            lambda state: (state / "federation").chmod(0o755),
            "error", 2, "others can reach", id="open to others",
        ),
        pytest.param(
            lambda state: shutil.rmtree(state / "federation"),
            "warning", 1, "there is none", id="no federation",
        ),
        pytest.param(
            lambda state: (state / "federation" / "authority.pem").unlink(),
            "error", 2, "no certificate authority", id="no authority",
        ),
    ],
)  # fmt: skip
def test_what_can_be_wrong(state: Path, spoil_it: Break, level: str, code: int, words: str) -> None:
    """One finding, with what to do and the exit code the program would have ended with."""
    spoil_it(state)
    (found,) = look(state)
    assert (level, code) == (found.level, found.code)
    assert words in found.words
    assert found.advice


@pytest.mark.parametrize(
    ("made", "code", "words"),
    [(timedelta(days=400), 75, "begins at"), (timedelta(days=-4000), 2, "ended on")],
)
def test_an_authority_that_is_not_of_this_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: timedelta, code: int, words: str
) -> None:
    """Before its begin this machine's clock is wrong; after its end nothing helps but a new federation."""
    monkeypatch.setattr(coordinator_state, "is_free", lambda port: True)
    Authority.open_or_create(tmp_path / "state" / "federation", now=datetime.now(UTC) + made)
    (found,) = look(tmp_path / "state")
    assert (code, True) == (found.code, words in found.words)


def test_a_full_disk(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is lost."""
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1 << 20}))
    (found,) = look(state)
    assert ("error", 4) == (found.level, found.code)
    assert "make room" in found.advice


def test_a_port_that_is_taken(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option that names another is said; a free one is no finding."""
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        found = list(coordinator_state.look_at_ports(ServerSettings(port=0, enrol_port=taken, http_port=0)))
    assert [("warning", f"port {taken}")] == [(check.level, check.about) for check in found]
    assert "--enrol-port" in found[0].advice
    assert ["ok"] == [
        check.level
        for check in coordinator_state.look_at_ports(ServerSettings(port=0, enrol_port=0, http_port=0))
    ]


def test_a_coordinator_at_work_is_left_alone(state: Path) -> None:
    """Its journal is not read, however it looks at that moment."""
    journal_of(state).write_bytes(b"half written")
    with (state / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [] == look(state)
    assert 1 == len(look(state))
