"""The list of all that leaves a site: bound line by line, written first, whole after any end."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pfl_client.connection.message_values import spell
from pfl_client.run_folder.audit import Audit, Book, Head, entries
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.errors import StateError
from pfl_common.evaluation import tell, vector
from pfl_common.files import atomic
from pfl_common.spec.messages import Blob, Offer, header_up
from pfl_common.spec.run import Description, Kind, Moments, Task
from pfl_common.wire import convert
from tests.client.support.scripted_site import FINISHED, Line, Trainer, assign, live, pin, put_together, quick

assert quick  # nobody waits here

TASK = Task(Kind.TRAIN, 1, 3)
NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)


def open_list(folder: Path) -> Audit:
    """A site's list, at noon."""
    return Audit(folder, clock=lambda: NOON)


def read(folder: Path) -> list[dict[str, object]]:
    """All lines as they are."""
    return [json.loads(text) for text in (folder / "audit.jsonl").read_text().splitlines()]


def chained(folder: Path) -> bool:
    """Whether each line holds the SHA-256 of the one before."""
    lines = (folder / "audit.jsonl").read_bytes().splitlines()
    before = ["", *(hashlib.sha256(line).hexdigest() for line in lines)]
    return before[:-1] == [json.loads(line)["before"] for line in lines]


def test_each_line_holds_the_hash_of_the_one_before(tmp_path: Path) -> None:
    """Also the first of a program that was started anew; the head names the newest when a task is done."""
    for part in (("one", "two"), ("three",)):
        audit = open_list(tmp_path)
        for kind in part:
            audit.note(kind, bytes=1)
        audit.settle()
    assert ["one", "two", "three"] == [line["kind"] for line in read(tmp_path)]
    assert chained(tmp_path)
    assert {"2026-11-19T12:00:00+00:00"} == {line["at"] for line in read(tmp_path)}
    last = list(Book(tmp_path / "audit.jsonl").lines())[-1]
    assert Head(3, last.digest) == Head.read(tmp_path)


@pytest.mark.parametrize("torn", [b'{"kind": "upd', b"\xff\x00", b'{"whole": 1}'])
def test_half_a_line_is_noted_and_breaks_nothing(tmp_path: Path, torn: bytes) -> None:
    """What a power cut left of the last line goes, a line says so, and the chain goes on."""
    audit = open_list(tmp_path)
    audit.note("one")
    audit.settle()
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(torn)
    open_list(tmp_path).note("two")
    assert ["one", "mended", "two"] == [line["kind"] for line in read(tmp_path)]
    assert (len(torn), True) == (read(tmp_path)[1]["torn_bytes"], chained(tmp_path))


@pytest.mark.parametrize("kept", [0, 1])
def test_lines_that_were_removed_stay_missed(tmp_path: Path, kept: int) -> None:
    """The head remembers them, and the next start notes it in the list before it goes on."""
    audit = open_list(tmp_path)
    audit.note("one")
    audit.note("two")
    audit.settle()
    book = tmp_path / "audit.jsonl"
    book.write_bytes(b"".join(book.read_bytes().splitlines(keepends=True)[:kept]))
    again = open_list(tmp_path)
    again.settle()
    missed = read(tmp_path)[kept]
    assert ("missing", 2, kept) == (missed["kind"], missed["lines"], missed["found_lines"])
    assert chained(tmp_path)


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are remembered and written in their order once there is room; who needs them on the disk is told."""
    audit, append, full = open_list(tmp_path), atomic.append, [True]

    def write(path: Path, line: bytes, **how: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "full")
        append(path, line, **how)

    monkeypatch.setattr(atomic, "append", write)
    audit.note("one")
    with pytest.raises(DiskFull):
        audit.flush()
    full[0] = False
    audit.note("two")
    assert ["one", "two"] == [line["kind"] for line in read(tmp_path)]
    assert chained(tmp_path)


def test_a_disk_with_room_for_half_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is taken back: the next one would be spoilt."""
    audit = open_list(tmp_path)
    audit.note("one")
    before = (tmp_path / "audit.jsonl").read_bytes()

    class Half:
        def __init__(self, file: object) -> None:
            self.file = file

        def __enter__(self) -> Half:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def tell(self) -> int:
            return os.fstat(self.file.fileno()).st_size

        def truncate(self, end: int) -> None:
            os.ftruncate(self.file.fileno(), end)

        def write(self, line: bytes) -> int:
            return self.file.write(line[: len(line) // 2])

    real = os.fdopen
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fdopen", lambda *words, **named: Half(real(*words, **named)))
        audit.note("two")
        assert before == (tmp_path / "audit.jsonl").read_bytes()
    audit.flush()
    assert ["one", "two"] == [line["kind"] for line in read(tmp_path)]


DESCRIPTION = Description(
    (3, 4, 4),
    ("cat", "dog"),
    8,
    warnings=("one class is small",),
    sizes=((4, 4, 8),),
    high=255.0,
    moments=Moments(8, (1.5, 2.5, 3.5), (4.0, 5.0, 6.0)),
    data="ab" * 8,
)


def test_all_that_is_said_at_joining_is_listed(tmp_path: Path) -> None:
    """Class names, shapes, counts, sizes, ranges, moments, fingerprint, warnings: whatever field the message has."""
    message = convert.say_description(DESCRIPTION)
    said = spell(message)
    assert {field.name for field, _ in message.ListFields()} == set(said)
    for value in ("cat", "dog", "one class is small", 255.0, "ab" * 8, 8):
        assert json.dumps(value) in json.dumps(said)
    for numbers in ([3, 4, 4], [1.5, 2.5, 3.5], [4.0, 5.0, 6.0]):
        assert json.dumps(numbers) in json.dumps(said)
    audit, body = open_list(tmp_path), message.SerializeToString()
    for _ in range(3):
        audit.tell("Join", body, len(body) + 64, lambda: spell(message))
    audit.settle()
    joining, calls = read(tmp_path)
    assert ("joining", len(body) + 64, said) == (joining["kind"], joining["bytes"], joining["said"])
    assert hashlib.sha256(body).hexdigest() == joining["digest"]
    assert {"Join": [2, 2 * (len(body) + 64)]} == calls["calls"], "said again it is counted"


def test_scores_are_listed_by_name(tmp_path: Path) -> None:
    """Five numbers that mean something, and how many follow from them."""
    message = convert.say_scores("000003-1-train", {"pre/test/combined": vector(3, 4, 0.5)})
    audit = open_list(tmp_path)
    audit.tell("Report", message.SerializeToString(), 900, lambda: spell(message))
    (line,) = read(tmp_path)
    numbers = {"correct": 3.0, "samples": 4.0, "accuracy": 0.75, "accuracy_squared": 0.5625, "loss": 0.5}
    named = {"pre/test/combined": {**numbers, "bins_of_the_accuracy": 101}}
    assert {"key": "000003-1-train", "scores": named} == line["said"]
    assert ("scores", 900) == (line["kind"], line["bytes"])


def test_diagnostics_are_listed_as_what_they_are(tmp_path: Path) -> None:
    """Apart from the scores they travel with, each with the numbers that went."""
    report = {"pre/test/combined": vector(3, 4, 0.5)} | tell({"share/p10": 0.5})
    message = convert.say_scores("000003-1-train", report)
    audit = open_list(tmp_path)
    audit.tell("Report", message.SerializeToString(), 900, lambda: spell(message))
    (line,) = read(tmp_path)
    assert ["pre/test/combined"] == list(line["said"]["scores"])
    assert {"share/p10": {"value": 0.5, "value_squared": 0.25, "sites": 1.0}} == line["said"]["diagnostics"]


def test_questions_for_work_are_counted(tmp_path: Path) -> None:
    """They have no line each, and none is lost between two tasks."""
    audit = open_list(tmp_path)
    for call, size in (("NextTask", 80), ("Heartbeat", 70), ("NextTask", 81)):
        audit.tell(call, b"", size, dict)
    audit.settle()
    audit.settle()
    (line,) = read(tmp_path)
    assert ("calls", 231, {"Heartbeat": [1, 70], "NextTask": [2, 161]}) == (
        line["kind"],
        line["bytes"],
        line["calls"],
    )


async def test_an_update_is_listed_before_it_leaves(tmp_path: Path) -> None:
    """Also one whose receipt never came, which no receipt lists; handed in again it stands once."""
    state = tmp_path / "state"
    with pytest.raises(StateError):
        await live(Line([assign()], troubles={"submit": [StateError("a sudden end")]}), Trainer(), state)
    (sent,) = entries(state, "run-1")
    assert ("update", "000001-1-train", 8, ["encoder.weight"]) == (
        sent["kind"],
        sent["task"],
        sent["bytes"],
        sent["names"],
    )


async def test_no_update_leaves_unlisted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for its line the site waits before it sends, and not after."""
    line, append, tries = Line([assign(), FINISHED]), atomic.append, []

    def write(path: Path, text: bytes, **how: int) -> None:
        if json.loads(text).get("kind") == "update" and len(tries) < 3:
            tries.append(line.hear("submit"))
            raise OSError(errno.ENOSPC, "full")
        append(path, text, **how)

    monkeypatch.setattr(atomic, "append", write)
    assert FINISHED == await live(line, Trainer(), tmp_path / "state")
    assert [[], [], []] == tries
    assert ["update", "receipt"] == [entry["kind"] for entry in entries(tmp_path / "state")]


async def test_a_list_of_an_earlier_release_is_read_still(tmp_path: Path) -> None:
    """What had left by it has left: the counters go on, and the new list begins."""
    state = tmp_path / "state"
    old = {"task": "000001-1-train", "run": "run-1", "bytes": 30, "digest": "d" * 64, "names": ["a"]}
    (state / "runs" / "run-1").mkdir(parents=True)
    (state / "runs" / "run-1" / "audit.jsonl").write_text(json.dumps(old) + '\n{"task": "0000')
    site = put_together(Line([assign(number=2), FINISHED]), Trainer(), state)
    assert (1, 30) == (site.watch.left["run-1"].updates, site.watch.left["run-1"].size)
    await site.run()
    assert (2, 38) == (site.watch.left["run-1"].updates, site.watch.left["run-1"].size)
    assert ["receipt", "update", "receipt"] == [entry["kind"] for entry in entries(state, "run-1")]
    assert pin().id == "run-1"


def test_what_left_is_on_the_disk_before_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut right after leaves the line: the list is synced for each message that says something, once."""
    synced: list[int] = []
    monkeypatch.setattr(atomic, "sync", lambda path: synced.append(len(path.read_bytes().splitlines())))
    audit = open_list(tmp_path)
    audit.tell("Join", b"words", 5, dict)
    assert [1] == synced
    audit.note("withheld", what=["classes"])
    assert [1] == synced, "nothing left with it"
    audit.announce(pin(), Offer("000001-1-train", header_up(pin(), TASK, "a", state=""), Blob("1" * 64, 9)))
    assert [1, 3] == synced
    audit.flush()
    assert [1, 3] == synced, "all of it lies there"


def test_what_leaves_in_one_message_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update and the evaluation that goes with it: both lie there before either leaves."""
    synced: list[int] = []
    monkeypatch.setattr(atomic, "sync", lambda path: synced.append(len(path.read_bytes().splitlines())))
    audit, offer = (
        open_list(tmp_path),
        Offer("000001-1-train", header_up(pin(), TASK, "a", state=""), Blob("1" * 64, 9)),
    )
    audit.announce(pin(), offer, lambda: audit.tell("Report", b"scores", 6, dict))
    assert [2] == synced
    assert ["update", "scores"] == [entry["kind"] for entry in entries(tmp_path)]
    audit.tell("Decline", b"words", 5, dict)
    assert [2, 3] == synced, "what leaves alone is synced alone"


def test_a_closed_task_lasts_with_what_leaves_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its receipt and its counted calls need no sync of their own, and the head never runs ahead of the list."""
    synced: list[tuple[int, Head | None]] = []

    def note(path: Path) -> None:
        synced.append((len(path.read_bytes().splitlines()), Head.read(tmp_path)))

    monkeypatch.setattr(atomic, "sync", note)
    audit = open_list(tmp_path)
    for number in (1, 2):
        blob = Blob(f"{number}" * 64, 9)
        audit.announce(pin(), Offer(f"00000{number}-1-train", header_up(pin(), TASK, "a", state=""), blob))
        audit.tell("HandIn", b"words", 5, dict)
        audit.receive("run-1", f"00000{number}-1-train", blob.digest, size=9, signature="")
        audit.close_task()
    kinds = ["update", "receipt", "calls"] * 2
    assert kinds == [line["kind"] for line in read(tmp_path)]
    assert [1, 4] == [lines for lines, _ in synced]
    assert [None, 1] == [head and head.lines for _, head in synced], "of what lasted before"
    audit.settle()
    assert ([1, 4, 6], 6) == ([lines for lines, _ in synced], Head.read(tmp_path).lines)


def test_the_lists_own_name_is_made_lasting_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a name is none after a power cut."""
    settled: list[Path] = []
    monkeypatch.setattr(atomic, "settle", settled.append)
    audit = open_list(tmp_path)
    for body in (b"one", b"two"):
        audit.tell("Join", body, 3, dict)
    assert [tmp_path] == settled


def test_updates_are_remembered_with_their_time(tmp_path: Path) -> None:
    """Of a list that was opened anew too; the same update twice is one."""
    for _ in range(2):
        audit = open_list(tmp_path)
        offer = Offer("000001-1-train", header_up(pin(), TASK, "a", state=""), Blob("1" * 64, 9))
        audit.announce(pin(), offer)
        assert ({"000001-1-train"}, frozenset()) == (audit.tasks_of("run-1"), audit.tasks_of("run-2"))
        assert (9, 0) == (audit.bytes_of_a_day(), audit.bytes_of_a_day(but="1" * 64))
    later = Audit(tmp_path, clock=lambda: NOON + timedelta(hours=24))
    assert 0 == later.bytes_of_a_day()
