"""Messages that sites have to send fit, and longer ones are refused by their length."""

from __future__ import annotations

import time

import pytest

from pfl_common import evaluation
from pfl_common.errors import Refused
from pfl_common.spec import data_description as bounds
from pfl_common.spec.messages import Blob, Mark, Offer, Seal
from pfl_common.spec.run import Description, Header, Kind
from pfl_common.wire import administration_pb2, convert, enrolment_pb2, limits, parts
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire.carrying import say_hand_in
from pfl_common.wire.convert import BESIDE_BYTES


def calls() -> set[str]:
    """Every call with a message of its own, as the protocol has them."""
    services = (
        *pb.DESCRIPTOR.services_by_name.values(),
        *administration_pb2.DESCRIPTOR.services_by_name.values(),
        *enrolment_pb2.DESCRIPTOR.services_by_name.values(),
    )
    return {method.name for service in services for method in service.methods}


def test_each_call_has_a_length() -> None:
    """Of what is not listed nothing is taken; a Store's message goes beside its frames, where gRPC bounds it."""
    assert (calls() | {"Fetch"}) - {"Store"} == set(limits.LARGEST)


def longest_report() -> bytes:
    """As many evaluations and told numbers as a report may hold, with the longest names."""
    values = evaluation.vector(1, 3, 0.5)
    scores = {f"post/validation/{n:032d}": values for n in range(evaluation.MOST)}
    told = {f"told/{'f' * 32}/{n:096d}": [1.5, 2.25, 1.0] for n in range(evaluation.MOST_TOLD)}
    evaluation.check(scores | told)
    return convert.say_scores("123456-12-evaluate", scores | told).SerializeToString()


def longest_hand_in() -> bytes:
    """The longest report with the longest update and the longest question."""
    header = Header(
        "r" * 200, 1 << 31, 1 << 31, Kind.TRAIN, "p" * 60, "up", "s" * 60, "m" * 64, ("g" * 60,) * 60
    )
    offer = Offer("123456-12-train", header, Blob("0" * 64, BESIDE_BYTES), Seal(bytes(2000), bytes(64)))
    said = say_hand_in(offer, bytes(BESIDE_BYTES), {}, pb.NextTaskRequest.FromString(longest_question()))
    said.report.ParseFromString(longest_report())
    return said.SerializeToString()


def longest_question() -> bytes:
    """As many generations as a vault can name."""
    marks = (Mark(1 << 31, 1 << 31),) * parts.MOST_MARKS
    said = convert.say_marks(marks, wait_seconds=25.0, beside_bytes=1 << 31, before=marks)
    return said.SerializeToString()


def words() -> Description:
    """Texts with the longest list of words that a site may tell."""
    size = bounds.MOST_WORD_BYTES // bounds.MOST_WORDS
    listed = tuple(f"{n:0{size}d}" for n in range(bounds.MOST_WORDS))
    found = Description((100,), ("a", "b"), kind="tokens", values="numbers", numbering="words", words=listed)
    bounds.check(found)
    return found


def classes() -> Description:
    """Pictures of as many classes as there may be."""
    found = Description((1, 28, 28), tuple(f"class number {n}" for n in range(bounds.MOST_CLASSES)))
    bounds.check(found)
    return found


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("Report", longest_report()),
        ("Join", convert.say_description(words()).SerializeToString()),
        ("Join", convert.say_description(classes()).SerializeToString()),
        ("NextTask", longest_question()),
        ("HandIn", longest_hand_in()),
        (
            "Heartbeat",
            pb.HeartbeatRequest(key="k" * 100, progress=1 << 63, hold_seconds=1).SerializeToString(),
        ),
        ("Fetch", convert.say_fetch("0" * 64, 1 << 40)),
    ],
    ids=["report", "words", "classes", "marks", "hand in", "heartbeat", "fetch"],
)
def test_the_longest_that_a_site_can_have_to_say_fits(call: str, body: bytes) -> None:
    """What the rules of its kind allow is not refused for its length."""
    limits.check_length(call, body)


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("NextTask", pb.NextTaskRequest(marks=[pb.Mark()] * 2_000_000).SerializeToString()),
        ("Report", b"\x12\x02\x0a\x00" * 350_000),
        ("Join", bytes(bounds.MOST_BYTES + 1)),
        ("HandIn", b"\x12\x04\x12\x02\x0a\x00" * 350_000),
    ],
    ids=["marks", "scores", "join", "hand in"],
)
def test_a_long_message_is_not_taken_apart(call: str, body: bytes) -> None:
    """Two million empty marks and 350,000 empty scores, which took seconds to read, are refused by their length."""
    began = time.perf_counter()
    with pytest.raises(Refused) as refused:
        limits.check_length(call, body)
    assert time.perf_counter() - began < 0.05
    assert "too_large" == refused.value.code
