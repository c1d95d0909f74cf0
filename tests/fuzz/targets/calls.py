"""Every message of the wire, as either side hears it: what is taken means the same when it is said again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from pfl_common.errors import Refused, UserError
from pfl_common.evaluation import check as check_scores
from pfl_common.evaluation import vector
from pfl_common.spec import data_description, status_json
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Event,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Point,
    Receipt,
    RunStatus,
    Scores,
    Seal,
    SiteStatus,
    Visited,
)
from pfl_common.spec.run import Description, Header, Kind, Moments, Task
from pfl_common.spec.table_schema import SeenColumn
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire.carrying import read_carrying, say_hand_in, weigh
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import target

ENTRY = Entry("w", "float32", (2, 2))
DIGEST = "ab" * 32
HEADER = Header("run-1", 1, 1, Kind.TRAIN, "train", "down", "coordinator", "0" * 32)
BLOB, SEAL = Blob(DIGEST, 9), Seal(b"wrap", b"signature")
TASK = Task(Kind.TRAIN, 4, 9, attempt=2, phase="second", since=3, drop=True, before=1)
"""With another value in each field: none of them can stand for another one."""
ASSIGNMENT = Assignment(TASK, replace(HEADER, round=4, attempt=2, groups=("g",), state="1" * 32), BLOB, SEAL)
JOINED = Joined("{}", BLOB, SEAL, b"card", ("a warning",))
RECEIPT = Receipt("run-1", "000001-1-train", "a", DIGEST)
PICTURES = Description((3, 8, 8), ("cat", "dog"), 7, sizes=((8, 8, 7),), high=255.0, data=DIGEST)
SCORES = {"pre/test/combined": vector(3, 4, 0.5), "told/loss": [0.5, 0.25, 1.0]}
STATUS = RunStatus(
    *("r", "fedavg", "running", 1, 9, 1),
    sites=(SiteStatus("a", "here", 1.0),),
    curve=(Point(1, 2.0, 1.0, 2, 2, 0, 0.5),),
    events=(Event(1.0, "info", "begun"),),
    scores={"acc_macro": 0.5},
    spec={"rounds": 9, "chosen": {"shape": "3x8x8"}},
)
TABLE = Description(
    (2,),
    ("ill", "well"),
    12,
    "table",
    values="numbers",
    table=(
        SeenColumn("age", missing=True, count=9, total=18.0, square=40.0),
        SeenColumn("ward", categorical=True, categories=("a", "b")),
    ),
)
NUMBERS = Description(
    (2,),
    ("a", "b"),
    9,
    "array",
    values="numbers",
    low=-1,
    high=4,
    moments=Moments(9, (6.0, 1.0), (14.0, 2.0)),
)


def hear_join(said: Any) -> Description:
    """A site's description of its data, as the coordinator checks it."""
    description = convert.hear_description(said)
    data_description.check(description)
    return description


def hear_report(said: Any) -> Scores:
    """A site's scores."""
    scores = convert.hear_scores(said)
    try:
        check_scores(scores)
    except ValueError as odd:
        raise Refused("scores", str(odd)) from None
    return scores


class Spoken(NamedTuple):
    """A kind of message: how it is heard, and how the same is said."""

    form: type[Message]
    hear: Callable[[Any], Any]
    say: Callable[[Any], Message]
    lost: frozenset[str] = frozenset()
    """Fields that are heard elsewhere, or cut."""


SPOKEN: tuple[Spoken, ...] = (
    Spoken(pb.JoinRequest, hear_join, convert.say_description),
    Spoken(pb.JoinAnswer, convert.hear_joined, convert.say_joined, frozenset({"warnings", "sums"})),
    Spoken(pb.VisitAnswer, convert.hear_visited, convert.say_visited, frozenset({"content", "hand_in"})),
    Spoken(
        pb.NextTaskRequest,
        convert.hear_marks,
        lambda marks: convert.say_marks(marks, wait_seconds=0),
        frozenset({"wait_seconds", "beside_bytes", "before"}),
    ),
    Spoken(
        pb.NextTaskRequest,
        convert.hear_marks_before,
        lambda marks: convert.say_marks((), wait_seconds=0, before=marks),
        frozenset({"wait_seconds", "beside_bytes", "marks"}),
    ),
    Spoken(
        pb.NextTaskAnswer, convert.hear_work, convert.say_work, frozenset({"words", "content", "hand_in"})
    ),
    Spoken(pb.OfferRequest, convert.hear_offer, convert.say_offer, frozenset({"content"})),
    Spoken(pb.Receipt, convert.hear_receipt, convert.say_receipt),
    Spoken(pb.Blob, convert.hear_blob, convert.say_blob),
    Spoken(
        pb.ReportRequest, hear_report, lambda scores: convert.say_scores("key", scores), frozenset({"key"})
    ),
    Spoken(
        pb.HandInRequest,
        lambda said: (
            convert.hear_offer(said.offer),
            hear_report(said.report),
            convert.hear_marks(said.next),
        ),
        lambda heard: say_hand_in(heard[0], b"", heard[1], convert.say_marks(heard[2], wait_seconds=0)),
        frozenset({"content", "wait_seconds", "beside_bytes", "before", "key"}),
    ),
    Spoken(
        pb.HandInAnswer,
        lambda said: (convert.hear_receipt(said.receipt), convert.hear_work(said.next)),
        lambda heard: pb.HandInAnswer(receipt=convert.say_receipt(heard[0]), next=convert.say_work(heard[1])),
        frozenset({"words", "content", "hand_in", "held_seconds"}),
    ),
)
BYTES: tuple[Callable[[bytes], object], ...] = (
    convert.hear_refusal,
    convert.hear_signed,
    convert.hear_fetch,
    convert.hear_store,
    convert.read_receipt,
    lambda content: weigh(read_carrying(content, pb.OfferRequest), len(content)),
    lambda content: weigh(read_carrying(content, pb.NextTaskAnswer), len(content)),
    lambda content: weigh(read_carrying(content, pb.HandInRequest), len(content)),
    lambda content: weigh(read_carrying(content, pb.HandInAnswer), len(content)),
)


def messages() -> list[Message]:
    """One of each kind that is taken, or more."""
    return [
        *map(convert.say_description, (PICTURES, TABLE, NUMBERS)),
        *map(convert.say_joined, (JOINED, Gathering(("why",), sums=True), None)),
        convert.say_visited(Visited(JOINED, ASSIGNMENT)),
        *map(convert.say_work, (ASSIGNMENT, Over("finished", "words", 3), None)),
        convert.say_marks((Mark(1, 1), Mark(2, 1)), wait_seconds=1.0, before=(Mark(1, 1),)),
        convert.say_offer(Offer("000001-1-train", HEADER, BLOB, SEAL)),
        say_hand_in(
            Offer("000001-1-train", HEADER, BLOB, SEAL),
            b"update",
            SCORES,
            convert.say_marks((Mark(1, 1),), wait_seconds=1.0),
        ),
        pb.HandInAnswer(
            receipt=convert.say_receipt(RECEIPT), next=convert.say_work(ASSIGNMENT), held_seconds=0.5
        ),
        convert.say_receipt(RECEIPT),
        convert.say_scores("000001-1-train", SCORES),
    ]


def _seeds() -> list[bytes]:
    return [
        *(one.SerializeToString() for one in messages()),
        convert.say_refusal(Refused("late", "too late")),
        convert.say_fetch(DIGEST, 9),
        convert.say_store("000001-1-train", 9),
    ]


@target("calls", Refused, seeds=_seeds, words=(b"a/b", DIGEST.encode(), b"\xed\xa0\x80"))
def hear(content: bytes) -> None:
    """As each kind of message: what cannot be one is refused by whoever calls."""
    for spoken in SPOKEN:
        with ends_in(Refused, DecodeError):
            hear_twice(spoken, content)
    for read in BYTES:
        with ends_in(Refused):
            read(content)


def hear_twice(spoken: Spoken, content: bytes) -> None:
    """What was heard is said again: field by field as it came, and then heard as the same."""
    came = spoken.form.FromString(content)
    first = spoken.hear(came)
    said = spoken.form.FromString(spoken.say(first).SerializeToString())
    assert _without_words(first) == _without_words(spoken.hear(said))
    fields, again = dict(_list_fields(came, spoken.lost)), dict(_list_fields(said, spoken.lost))
    older = {"values"} - fields.keys()  # a site of an older release does not say how its numbers are stored
    assert fields == {name: value for name, value in again.items() if name not in older}


def _list_fields(message: Message, lost: frozenset[str], at: str = "") -> Iterator[tuple[str, object]]:
    """Each field that says something, by its way there; a part that says nothing is as good as none."""
    for field, value in message.ListFields():
        if field.name in lost:
            continue
        place = f"{at}{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in value:
                yield f"{place}[{key!r}]", list(value[key].values)
        elif field.message_type is None:
            yield place, list(value) if field.is_repeated else value
        else:
            for number, part in enumerate(value if field.is_repeated else [value]):
                yield from _list_fields(
                    part, lost, f"{place}.{number}." if field.is_repeated else f"{place}."
                )


def _without_words(heard: Any) -> object:
    """Words for people aside: signs that are written as their numbers make them longer, so that they are cut anew."""
    match heard:
        case Over():
            return replace(heard, words="")
        case Gathering():
            return heard.sums  # without words it may be nothing at all
        case None:
            return False
        case Joined():
            return replace(heard, warnings=())
        case _:
            return heard


@target("status", UserError, seeds=lambda: [status_json.write(STATUS)])
def read_status(content: bytes) -> None:
    """What `pfl status` gets from a coordinator."""
    status = status_json.read(content)
    assert status_json.read(status_json.write(status)) == status
