"""What a control call carries is weighed alike at both ends, and a task is handed in as it was said."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from pfl_common.spec.messages import Assignment, Blob, Mark, Offer, Seal
from pfl_common.spec.run import Header, Kind, Task
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire.carrying import HAND_IN_BYTES, read_carrying, say_hand_in, weigh

KEY, CONTENT = "000001-1-train", bytes(1000)
HEADER = Header("run-1", 1, 1, Kind.TRAIN, "train", "up", "a", "manifest")
OFFER = Offer(KEY, HEADER, Blob("0" * 64, len(CONTENT)), Seal(b"wrap", b"signature"))
SCORES = {"pre/test/combined": [3.0, 4.0, 0.75, 0.5625, 0.5]}
QUESTION = convert.say_marks((Mark(1, 1),), wait_seconds=1.0, beside_bytes=9)
FINISH = Assignment(Task(Kind.FINISH, 1, 1), HEADER, OFFER.blob)


def give(content: bytes) -> pb.NextTaskAnswer:
    """A task with its parcel."""
    said = convert.say_work(FINISH)
    said.assignment.content = content
    return said


def test_three_calls_in_one_are_heard_as_each_alone() -> None:
    """Update, evaluation and question; without an evaluation there is none."""
    said = pb.HandInRequest.FromString(say_hand_in(OFFER, CONTENT, SCORES, QUESTION).SerializeToString())
    assert (OFFER, CONTENT) == (convert.hear_offer(said.offer), said.offer.content)
    assert (KEY, SCORES) == (said.report.key, convert.hear_scores(said.report))
    assert (Mark(1, 1),) == convert.hear_marks(said.next)
    assert not say_hand_in(OFFER, CONTENT, {}, QUESTION).HasField("report")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (say_hand_in(OFFER, CONTENT, SCORES, QUESTION), (Kind.TRAIN, 1000)),
        (pb.HandInAnswer(next=give(CONTENT)), (Kind.FINISH, 1000)),
        (give(CONTENT), (Kind.FINISH, 1000)),
        (pb.HandInAnswer(next=convert.say_work(None)), (Kind.TRAIN, 0)),
        (QUESTION, (Kind.TRAIN, 0)),
    ],
)
def test_a_parcel_is_weighed_under_its_kind(said: Message, expected: tuple[Kind, int]) -> None:
    """Of a call its update, of an answer its download; what carries none weighs nothing."""
    assert expected == weigh(said, len(said.SerializeToString()))


def test_what_is_too_long_is_not_taken_apart() -> None:
    """Nor what is no message."""
    said = say_hand_in(OFFER, bytes(HAND_IN_BYTES), SCORES, QUESTION)
    assert read_carrying(said.SerializeToString(), pb.HandInRequest) is None
    assert read_carrying(b"\xff\xff", pb.HandInRequest) is None
    assert (Kind.TRAIN, 0) == weigh(None, 2)
