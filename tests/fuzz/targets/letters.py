"""Letters between daemon and trainer."""

from __future__ import annotations

from pathlib import Path

import zmq

from pfl_client.trainer_process import protocol
from pfl_client.trainer_process.api import DataFolder, Done, Job
from pfl_common.errors import DataError
from pfl_common.spec.run import Description, Kind, Task
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import target

SECRET = bytes(range(protocol.SECRET_BYTES))
JOB = Job(Task(Kind.TRAIN, 1, 3), b"", (), None, Path("/x/keep"))
LETTERS: tuple[protocol.Letter, ...] = (
    protocol.Hello(),
    protocol.Describe(DataFolder(Path("/x"), "site-a")),
    protocol.Open(DataFolder(Path("/x"), "site-a"), Path("/x/init")),
    protocol.ask_for(JOB)[0],
    protocol.Moved(3),
    protocol.Described(Description((1, 4, 4), ("a", "b"), 7)),
    protocol.answer_with(Done({"pre/test/combined": [1.0, 2.0]}))[0],
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
            protocol.read_done(letter, body)
        case protocol.Unable():
            protocol.explain(protocol.rebuild(letter))
