"""The list of everything that leaves a site; each line holds the hash of the one before.

    audit.jsonl   a JSON object a line; `before` is the SHA-256 of the line before it, or empty in the first
    audit.head    how many lines there were when all were last made lasting, and the SHA-256 of the last of them

A line is written, and lies safely on the disk, before its message is sent, so all that left is listed, even if it
never arrived and the power fails right after. Signs of life and questions for work are counted, not listed. So is what
the site's policy says, and what was withheld, changed or refused by it. Earlier releases had a list of receipts per run
(`runs/RUN/audit.jsonl`).
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pfl_client.trainer_process.task_errors import DiskFull, disk_full
from pfl_common.evaluation import TOLD
from pfl_common.files import atomic
from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Json, RunSpec

BOOK, HEAD = "audit.jsonl", "audit.head"
LISTED = {
    "Enrol": "enrolment",
    "Renew": "renewal",
    "Join": "joining",
    "Visit": "visit",
    "Report": "scores",
    "Decline": "decline",
    "Leave": "goodbye",
}
"""Calls that say something of the site, and what the list calls them; all others are counted."""
UPDATE, RECEIPT, COUNTED, CARD, MENDED, MISSING = "update", "receipt", "calls", "card", "mended", "missing"
POLICY, WITHHELD, REFUSED = "policy", "withheld", "refused"
"""The rules in force, what of a message was taken out or changed by them, and what was not done at all."""
LEFT = (*LISTED.values(), UPDATE, COUNTED)
"""What the list says of things that left; its other lines are of receipts, of the policy and of the list itself."""
DAY = timedelta(hours=24)
_VECTOR = ("correct", "samples", "accuracy", "accuracy_squared", "loss")
_TOLD_VECTOR = ("value", "value_squared", "sites")


@dataclass
class Left:
    """The updates of one run that have left, as their receipts here show: their number and bytes."""

    updates: int = 0
    size: int = 0
    _last: tuple[object, object] | None = None

    def add(self, task: object, digest: object, size: int) -> None:
        """One more; what is handed in again after a restart has left only once."""
        if self._last != (task, digest):
            self.updates, self.size = self.updates + 1, self.size + size
        self._last = task, digest


@dataclass(frozen=True)
class Sent:
    """An update that was about to leave: when, how large, for which task of which run."""

    run: str
    task: str
    at: datetime
    size: int


@dataclass(frozen=True)
class Line:
    """One whole line of a list: its number, its hash, and its content (None if unreadable)."""

    number: int
    digest: str
    said: dict[str, Json] | None


@dataclass
class Book:
    """A list read line by line, and any remainder behind the last whole line."""

    path: Path
    torn: bytes = b""
    size: int = 0
    """Bytes of the whole lines."""

    def lines(self) -> Iterator[Line]:
        """From the first to the last whole one; `torn` and `size` are known afterwards."""
        if not self.path.exists():
            return
        with self.path.open("rb") as book:
            for number, raw in enumerate(book, start=1):
                if not raw.endswith(b"\n"):
                    self.torn = raw
                    return
                self.size += len(raw)
                yield Line(number, hashlib.sha256(raw[:-1]).hexdigest(), _read(raw))


@dataclass(frozen=True)
class Head:
    """The newest line's hash, kept beside the list to reveal that last lines were removed."""

    lines: int
    digest: str

    @classmethod
    def read(cls, folder: Path) -> Head | None:
        """The head beside the list; None if there is none or it cannot be read."""
        try:
            said = json.loads((folder / HEAD).read_bytes())
            return cls(int(said["lines"]), str(said["sha256"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return None


def entries(folder: Path, run: str = "") -> Iterator[dict[str, Json]]:
    """All a site has listed, of one run or of all: first the lists of older releases, as receipts of their runs."""
    for book in sorted(folder.glob(f"runs/{run or '*'}/{BOOK}")):
        for line in Book(book).lines():
            if line.said is not None:
                yield {"kind": RECEIPT, "run": book.parent.name, **line.said}
    for line in Book(folder / BOOK).lines():
        if line.said is not None and run in ("", line.said.get("run")):
            yield line.said


@dataclass
class _Calls:
    """Calls of one kind: how many, and their bytes."""

    count: int = 0
    size: int = 0


@dataclass
class _Memory:
    """Entries and calls not yet on disk, and the last entry of each kind, so that repetitions are left out."""

    owed: list[dict[str, Json]] = field(default_factory=list)
    noted: dict[str, str] = field(default_factory=dict)
    calls: dict[str, _Calls] = field(default_factory=dict)
    lasts: bool = True
    """Whether every line on the disk outlives a power cut."""
    named: bool = False
    """Whether the list's own name does."""
    together: bool = False
    """Whether several lines of one moment are being made: they are written at once when all are there."""


class Audit:
    """A site's list, open for writing; its owner holds the lock on the site's folder."""

    def __init__(self, folder: Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._folder, self._clock, self._lock = folder, clock, threading.Lock()
        self._book, self._head = folder / BOOK, folder / HEAD
        self._memory = _Memory()
        self.left: dict[str, Left] = {}
        """By run, also before this process began: a counter that started at 0 would jump."""
        self._sent: dict[str, Sent] = {}
        """Updates by their digest, also of before this process began: limits hold across restarts."""
        self.run = ""
        """The run that is under way."""
        self._lines, self._digest = 0, ""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open()

    def tasks_of(self, run: str) -> frozenset[str]:
        """The tasks of a run whose updates have left."""
        return frozenset(sent.task for sent in self._sent.values() if sent.run == run)

    def bytes_of_a_day(self, *, but: str = "") -> int:
        """Bytes of the updates that have left in the last 24 hours, without the one of this digest."""
        since = self._clock() - DAY
        return sum(one.size for digest, one in self._sent.items() if one.at > since and digest != but)

    def note(self, kind: str, **facts: Json) -> None:
        """Add a line; while the disk has no room it is remembered, and written before the next."""
        with self._lock:
            at = self._clock().isoformat(timespec="seconds")
            self._memory.owed.append({"kind": kind, "at": at, **facts})
            with suppress(DiskFull):
                self._write(lasting=kind in LEFT and not self._memory.together)

    def note_once(self, kind: str, about: str, /, **facts: Json) -> None:
        """Add a line unless the last line of its kind was about the same: a retry says nothing new."""
        if self._memory.noted.get(kind) != about:
            self._memory.noted[kind] = about
            self.note(kind, **facts)

    def tell(self, call: str, body: bytes, size: int, fields: Callable[[], dict[str, Json]]) -> None:
        """List a message before it is sent: `size` bytes with its signature. The same message again is only counted."""
        kind = LISTED.get(call)
        digest = hashlib.sha256(body).hexdigest() if kind is not None else ""
        if kind is None or self._memory.noted.get(kind) == digest:
            calls = self._memory.calls.setdefault(call, _Calls())
            calls.count, calls.size = calls.count + 1, calls.size + size
            return
        said = shorten(fields())
        self.note_once(kind, digest, run=self.run, bytes=size, digest=digest, said=said)

    def meet(self, run: str, card: bytes) -> None:
        """List the coordinator's card, by which its receipts can be checked later; a simulation has none."""
        if card:
            self.note_once(CARD, card.hex(), run=run, card=card.hex())

    def announce(self, spec: RunSpec, offer: Offer, also: Callable[[], None] = lambda: None) -> None:
        """An update is about to leave: names, bytes, hash, task. DiskFull if that cannot be written first.

        `also` lists what leaves in the same message; all of it is made lasting together.
        """
        header, blob = offer.header, offer.blob
        names = [entry.name for entry in spec.manifest(header.kind, header.phase, "up")]
        facts: dict[str, Json] = {"run": spec.id, "task": offer.key, "state": header.state}
        facts |= {"names": [*names], "groups": [*header.groups], "digest": blob.digest, "bytes": blob.size}
        with self._together():
            self.note_once(UPDATE, f"{spec.id}/{offer.key}/{blob.digest}", **facts)
            also()
        self._make_lasting()
        self._sent.setdefault(blob.digest, Sent(spec.id, offer.key, self._clock(), blob.size))

    def receive(self, run: str, task: str, digest: str, *, size: int, signature: str) -> None:
        """List the coordinator's receipt for an update; it is written when the task is closed."""
        facts: dict[str, Json] = {"run": run, "task": task, "digest": digest, "bytes": size}
        with self._together():
            self.note_once(RECEIPT, f"{run}/{task}/{digest}", **facts, receipt=signature)
        self.left.setdefault(run, Left()).add(task, digest, size)

    def flush(self) -> None:
        """Have everything on the disk, lastingly, or DiskFull."""
        with self._lock:
            self._write(lasting=True)

    def close_task(self) -> None:
        """Messages that were only counted get a line. It is made lasting with what leaves next, or when all is."""
        calls, self._memory.calls = self._memory.calls, {}
        if calls:
            told: Json = {name: [one.count, one.size] for name, one in sorted(calls.items())}
            with self._together():
                self.note(COUNTED, run=self.run, bytes=sum(one.size for one in calls.values()), calls=told)
        with self._lock, suppress(DiskFull):
            self._write()

    def settle(self) -> None:
        """Close a task in the list, and make all of it lasting."""
        self.close_task()
        self._make_lasting()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Lines that are made meanwhile are written by who asks for it afterwards."""
        self._memory.together = True
        try:
            yield
        finally:
            self._memory.together = False

    def _make_lasting(self) -> None:
        with self._lock:
            # First the list: a head that outlived its lines in a power cut would call them removed.
            self._write(lasting=True)
            if self._lines:
                with disk_full(self._folder):
                    self._keep_head()

    def _keep_head(self) -> None:
        text = json.dumps({"lines": self._lines, "sha256": self._digest})
        atomic.write_over(self._head, text.encode())

    def _open(self) -> None:
        """Read the whole list; if a power cut left half a line, add a line that says so."""
        head, kept = Head.read(self._folder), False
        for entry in self._earlier():
            self._count(entry)
        book = Book(self._book)
        for line in book.lines():
            self._lines, self._digest = line.number, line.digest
            kept = kept or head == Head(line.number, line.digest)
            self._count(line.said)
        if book.torn:
            os.truncate(book.path, book.size)
            self.note(MENDED, torn_bytes=len(book.torn), torn=book.torn[:200].decode(errors="replace"))
        if head is not None and not kept:
            self.note(MISSING, lines=head.lines, sha256=head.digest, found_lines=self._lines)

    def _earlier(self) -> Iterator[Mapping[str, Json] | None]:
        for book in sorted(self._folder.glob(f"runs/*/{BOOK}")):
            for line in Book(book).lines():
                yield {"kind": RECEIPT, "run": book.parent.name, **line.said} if line.said else None

    def _count(self, said: Mapping[str, Json] | None) -> None:
        if said is not None and said.get("kind") == UPDATE:
            self._recall(said)
        if said is None or said.get("kind") != RECEIPT:
            return
        size = said.get("bytes")
        if isinstance(size, int) and "task" in said and "digest" in said:
            left = self.left.setdefault(str(said.get("run", "")), Left())
            left.add(said["task"], said["digest"], size)

    def _recall(self, said: Mapping[str, Json]) -> None:
        size, at = said.get("bytes"), said.get("at")
        with suppress(ValueError):
            if isinstance(size, int) and isinstance(at, str):
                sent = Sent(str(said.get("run")), str(said.get("task")), datetime.fromisoformat(at), size)
                self._sent.setdefault(str(said.get("digest")), sent)

    def _write(self, *, lasting: bool = False) -> None:
        if self._memory.owed and not self._memory.together:
            self._append(self._memory.owed)
            self._memory.owed, self._memory.lasts = [], False
        if lasting and not self._memory.lasts:
            with disk_full(self._folder):
                atomic.sync(self._book)
                if not self._memory.named:
                    atomic.settle(self._folder)
            self._memory.lasts = self._memory.named = True

    def _append(self, owed: Sequence[dict[str, Json]]) -> None:
        texts, digest = [], self._digest
        for said in owed:
            texts.append(json.dumps({**said, "before": digest}, sort_keys=True).encode() + b"\n")
            digest = hashlib.sha256(texts[-1][:-1]).hexdigest()
        with disk_full(self._folder):
            atomic.append(self._book, b"".join(texts), mode=0o600)
        self._lines, self._digest = self._lines + len(texts), digest


def _read(raw: bytes) -> dict[str, Json] | None:
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def shorten(said: dict[str, Json]) -> dict[str, Json]:
    """Scores by name, without the 101 numbers that follow from the accuracy, and what the method measured of its
    training by itself; everything else as it is.
    """
    scores = said.get("scores")
    if not isinstance(scores, dict):
        return said
    told = {name: vector for name, vector in scores.items() if name.startswith(TOLD)}
    measured = {name: _name_numbers(scores[name], _VECTOR) for name in scores if name not in told}
    diagnostics = {name.removeprefix(TOLD): _name_numbers(v, _TOLD_VECTOR) for name, v in told.items()}
    return {**said, "scores": measured} | ({"diagnostics": diagnostics} if diagnostics else {})


def _name_numbers(vector: Json, names: Sequence[str]) -> Json:
    values = vector.get("values") if isinstance(vector, dict) else None
    if not isinstance(values, list):
        return vector
    named: dict[str, Json] = dict(zip(names, values, strict=False))
    return (
        named
        if names is _TOLD_VECTOR
        else {**named, "bins_of_the_accuracy": max(0, len(values) - len(names))}
    )
