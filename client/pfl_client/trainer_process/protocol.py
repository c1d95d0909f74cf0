"""The messages between daemon and trainer, as ZeroMQ frames: secret, a letter as JSON, bytes in pieces.

Torch-free, and both ends use it. A parcel travels in frames of 1 MiB beside its letter; a larger one stays in
a file and the letter names its path.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import zmq
from pydantic import Field, TypeAdapter, ValidationError

from pfl_client.trainer_process import task_errors
from pfl_client.trainer_process.api import BestSoFar, DataFolder, Done, Job, Measured, Parcel
from pfl_client.trainer_process.buffers import Pool
from pfl_common import errors
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Description, Task

SECRET_BYTES = 32
FRAME = 1 << 20
PARCEL_LIMIT = 64 << 20
HIGH_WATER = 4
"""Messages that wait for a reader: one question or its answer, and a few of progress."""

_HEAD, _SIZE = 3, 8
"""Frames before the body: secret, letter, size; and the bytes of the last."""

Buffer: TypeAlias = bytes | memoryview


@dataclass(frozen=True)
class Hello:
    """Trainer: I am ready."""

    says: Literal["hello"] = "hello"


@dataclass(frozen=True)
class Describe:
    """Daemon: describe this data folder."""

    folder: DataFolder
    says: Literal["describe"] = "describe"


@dataclass(frozen=True)
class Open:
    """Daemon: prepare this run; its specification follows the letter."""

    folder: DataFolder
    init: Path
    says: Literal["open"] = "open"


@dataclass(frozen=True)
class Work:
    """Daemon: do this task; if `down` is no path, the parcel follows the letter."""

    task: Task
    groups: tuple[str, ...]
    keep_as: Path
    down: Path | None = None
    kept: Path | None = None
    serve_as: Path | None = None
    parcel_as: Path | None = None
    best: BestSoFar | None = None
    alone: bool = False
    as_delta: bool = False
    sent: str = ""
    says: Literal["work"] = "work"


@dataclass(frozen=True)
class Moved:
    """Trainer: this many more samples are done."""

    samples: int
    says: Literal["moved"] = "moved"


@dataclass(frozen=True)
class Described:
    """Trainer: the description of the folder."""

    description: Description
    says: Literal["described"] = "described"


@dataclass(frozen=True)
class Opened:
    """Trainer: the run is prepared."""

    says: Literal["opened"] = "opened"


@dataclass(frozen=True)
class Finished:
    """Trainer: the task is done; its update is the file `up`, or follows the letter if `beside`, or there is none."""

    scores: Scores = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    device: str = ""
    memory: dict[str, int] = field(default_factory=dict)
    halved: bool = False
    best: Measured | None = None
    told: tuple[str, ...] = ()
    up: Path | None = None
    beside: bool = False
    moved: int = 0
    """Samples done that nothing was said of yet: a small task needs no word of its own for them."""
    says: Literal["finished"] = "finished"


@dataclass(frozen=True)
class Unable:
    """Trainer: an error that a person can mend."""

    error: str
    seen: str
    expected: str
    advice: str
    file: str = ""
    says: Literal["unable"] = "unable"


@dataclass(frozen=True)
class Broken:
    """Trainer: a fault of the program; its text holds no numbers of the data or the model."""

    words: str
    says: Literal["broken"] = "broken"


Letter: TypeAlias = Hello | Describe | Open | Work | Moved | Described | Opened | Finished | Unable | Broken

_LETTER: TypeAdapter[Letter] = TypeAdapter(Annotated[Letter, Field(discriminator="says")])

_ERRORS: dict[str, type[errors.UserError]] = {
    kind.__name__: kind
    for kind in (
        errors.UserError,
        errors.SettingError,
        errors.DataError,
        errors.StateError,
        task_errors.Declined,
        task_errors.OutOfMemory,
        task_errors.Diverged,
        task_errors.WrongShape,
        task_errors.DiskFull,
        task_errors.PersonalTensor,
        task_errors.Tampered,
    )
}


class Garbled(Exception):
    """The received bytes are no letter from the process we started."""


def pack(secret: bytes, letter: Letter, body: Buffer = b"") -> list[Buffer]:
    """A letter, how much goes beside it, and that, as frames."""
    if len(body) > PARCEL_LIMIT:
        raise ValueError(f"{len(body)} bytes are too many for a message: write them to a file, send its path")
    whole = memoryview(body)
    pieces = [whole[start : start + FRAME] for start in range(0, len(whole), FRAME)]
    # A letter holds letters' parts and paths; asdict would copy each deeply, which takes longer than all the rest.
    head = json.dumps(letter, default=_plain).encode()
    return [secret, head, len(whole).to_bytes(_SIZE, "big"), *pieces]


class Arrival:
    """A message that arrives frame by frame; its attached bytes are collected in reused memory."""

    def __init__(self, secret: bytes, pool: Pool) -> None:
        self._secret, self._pool = secret, pool
        self._head: list[bytes] = []
        self._body, self._filled = memoryview(b""), 0

    def take(self, frame: zmq.Frame) -> None:
        """The next frame; anything without the secret is not looked at."""
        if len(self._head) < _HEAD:
            self._head.append(frame.bytes)
            if not hmac.compare_digest(self._head[0], self._secret):
                raise Garbled("a message without this launch's secret")
            if len(self._head) == _HEAD:
                self._make_room(self._head[2])
            return
        end = self._filled + len(frame)
        if end > len(self._body):
            raise Garbled("a message with more beside it than it said")
        if len(frame):
            self._body[self._filled : end] = frame.buffer
        self._filled = end

    def read(self) -> tuple[Letter, memoryview]:
        """The letter and what is beside it, good until the next message."""
        if len(self._head) < _HEAD or self._filled != len(self._body):
            raise Garbled("a message that ends too early")
        try:
            return _LETTER.validate_json(self._head[1]), self._body
        except ValidationError as error:
            raise Garbled(f"a letter that cannot be read: {error.error_count()} errors") from None

    def _make_room(self, said: bytes) -> None:
        if len(said) != _SIZE:
            raise Garbled(f"a size of {len(said)} bytes; expected {_SIZE}")
        size = int.from_bytes(said, "big")
        if size > PARCEL_LIMIT:
            raise Garbled(f"a message of {size} bytes; at most {PARCEL_LIMIT}")
        if size:
            self._body = self._pool.take(size)


def unpack(secret: bytes, frames: Iterable[zmq.Frame]) -> tuple[Letter, memoryview]:
    """A whole message that is here already."""
    arrival = Arrival(secret, Pool())
    for frame in frames:
        arrival.take(frame)
    return arrival.read()


def limit(socket: zmq.Socket[bytes]) -> None:
    """Bound what a socket takes in and keeps waiting; it never holds up the end of its process."""
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME)
    socket.setsockopt(zmq.LINGER, 0)


def ask_for(job: Job) -> tuple[Work, Buffer]:
    """A job as a letter and what goes beside it."""
    path, body = _part(job.down)
    letter = Work(
        task=job.task,
        groups=job.groups,
        keep_as=job.keep_as,
        down=path,
        kept=job.kept,
        serve_as=job.serve_as,
        parcel_as=job.parcel_as,
        best=job.best,
        alone=job.alone,
        as_delta=job.as_delta,
        sent=job.sent,
    )
    return letter, body


def read_job(letter: Work, body: Buffer) -> Job:
    """The reverse of `ask_for`."""
    return Job(
        task=letter.task,
        down=body if letter.down is None else letter.down,
        groups=letter.groups,
        kept=letter.kept,
        keep_as=letter.keep_as,
        serve_as=letter.serve_as,
        parcel_as=letter.parcel_as,
        best=letter.best,
        alone=letter.alone,
        as_delta=letter.as_delta,
        sent=letter.sent,
    )


def answer_with(done: Done, *, moved: int = 0) -> tuple[Finished, Buffer]:
    """The result of a job, as a letter and the bytes that follow it; and the samples that were `moved` last."""
    path, body = (None, b"") if done.up is None else _part(done.up)
    beside = done.up is not None and not isinstance(done.up, Path)
    letter = Finished(
        done.scores,
        done.metrics,
        done.groups,
        done.seconds,
        device=done.device,
        memory=done.memory,
        halved=done.halved,
        best=done.best,
        told=done.told,
        up=path,
        beside=beside,
        moved=moved,
    )
    return letter, body


def read_done(letter: Finished, body: Buffer) -> Done:
    """The reverse of `answer_with`."""
    up: Parcel | None = body if letter.beside else letter.up
    return Done(
        letter.scores,
        letter.metrics,
        up,
        letter.groups,
        letter.seconds,
        letter.device,
        letter.memory,
        halved=letter.halved,
        best=letter.best,
        told=letter.told,
    )


def explain(error: errors.UserError) -> Unable:
    """An error a person can mend, with its words kept apart; an unknown kind goes as its known base."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS)
    return Unable(kind, error.seen, error.expected, error.advice, error.file)


def rebuild(letter: Unable) -> errors.UserError:
    """The error again, as if the trainer were here."""
    kind = _ERRORS.get(letter.error, errors.UserError)
    return kind(letter.seen, expected=letter.expected, advice=letter.advice, file=letter.file)


def _plain(part: object) -> object:
    return vars(part) if is_dataclass(part) else str(part)


def _part(parcel: Parcel) -> tuple[Path | None, Buffer]:
    return (parcel, b"") if isinstance(parcel, Path) else (None, parcel)
