"""Letters between daemon and trainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import zmq

from pfl_client.trainer_process import protocol
from pfl_client.trainer_process.api import BestSoFar, DataFolder, Done, Job, Measured
from pfl_common.errors import DataError
from pfl_common.spec.run import Description, Kind, Task
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import target

SECRET = bytes(range(protocol.SECRET_BYTES))
TASK = Task(Kind.TRAIN, 4, 9, attempt=2, phase="second", since=3, drop=True, late=True, before=1)
BEST = BestSoFar(Path("/x/best"), Measured(2, 0.5, 0.25, 9), Path("/x/old"))
JOB = Job(
    TASK, b"", ("g",), Path("/x/kept"), Path("/x/keep"), Path("/x/serve"), Path("/x/parcel"), BEST, alone=True
)
"""With another value in each field: none of them can stand for another one."""
DONE = Done(
    {"pre/test/combined": [1.0, 2.0]},
    {"loss": 0.5},
    groups=("g",),
    seconds={"train": 1.5},
    device="cpu",
    memory={"resident": 9},
    halved=True,
    best=Measured(2, 0.5, 0.25, 9),
    told=("w",),
)
LETTERS: tuple[protocol.Letter, ...] = (
    protocol.Hello(),
    protocol.Describe(DataFolder(Path("/x"), "site-a")),
    protocol.Open(DataFolder(Path("/x"), "site-a"), Path("/x/init")),
    protocol.ask_for(JOB)[0],
    protocol.Moved(3),
    protocol.Described(Description((1, 4, 4), ("a", "b"), 7)),
    protocol.answer_with(DONE)[0],
    protocol.Work(TASK, ("g",), Path("/x/keep"), Path("/x/down")),
    protocol.explain(DataError("seen", expected="expected", advice="advice")),
    protocol.Broken("words"),
)
SEPARATOR = b"\n--\n"
"""Between the frames of an input."""


def _seeds() -> list[bytes]:
    return [
        SEPARATOR.join(map(bytes, protocol.pack(SECRET, letter, body)))
        for letter, body in ((letter, body) for letter in LETTERS for body in (b"", b"parcel"))
    ]


@target("letters", protocol.Garbled, seeds=_seeds, words=(SEPARATOR, SECRET, b'"says":"work"'))
def unpack(content: bytes) -> None:
    """Frames of whatever bytes, with the launch's secret and without: what is read is what would be written."""
    frames = content.split(SEPARATOR)
    for first in ([], [SECRET]):
        with ends_in(protocol.Garbled):
            letter, body = protocol.unpack(SECRET, map(zmq.Frame, [*first, *frames]))
            _use(letter, body)
            again = protocol.pack(SECRET, letter, body)
            heard, beside = protocol.unpack(SECRET, map(zmq.Frame, map(bytes, again)))
            # As text: a NaN differs from itself.
            assert (repr(letter), bytes(body)) == (repr(heard), bytes(beside))


def _use(letter: protocol.Letter, body: protocol.Buffer) -> None:
    match letter:
        case protocol.Work():
            again, beside = protocol.ask_for(protocol.read_job(letter, body))
            assert again == letter
            assert bytes(beside) == (bytes(body) if letter.down is None else b"")
        case protocol.Finished():
            again, beside = protocol.answer_with(protocol.read_done(letter, body), moved=letter.moved)
            assert repr(replace(letter, up=again.up)) == repr(again)  # what lies beside it is no file
            assert bytes(beside) == (bytes(body) if letter.beside else b"")
        case protocol.Unable():
            protocol.explain(protocol.rebuild(letter))
