"""Every message of the wire, as either side hears it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from pfl_common.errors import Refused, UserError
from pfl_common.evaluation import check as check_scores
from pfl_common.spec import data_description, status_json
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    RunStatus,
    Seal,
    Visited,
)
from pfl_common.spec.run import Description, Header, Kind, Moments, Task
from pfl_common.spec.table_schema import SeenColumn
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from tests.fuzz.target import target

ENTRY = Entry("w", "float32", (2, 2))
DIGEST = "ab" * 32
HEADER = Header("run-1", 1, 1, Kind.TRAIN, "train", "down", "coordinator", "0" * 32)
BLOB, SEAL = Blob(DIGEST, 9), Seal(b"wrap", b"signature")
ASSIGNMENT = Assignment(Task(Kind.TRAIN, 1, 3), HEADER, BLOB, SEAL)
JOINED = Joined("{}", BLOB, SEAL, b"card", ("a warning",))
PICTURES = Description((3, 8, 8), ("cat", "dog"), 7, sizes=((8, 8, 7),), high=255.0, data=DIGEST)
TABLE = Description(
    (2,), ("ill", "well"), 12, "table", values="numbers", table=(SeenColumn("age"), SeenColumn("ward", True))
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


def hear_join(said: Any) -> None:
    """A site's description of its data, as the coordinator checks it."""
    data_description.check(convert.hear_description(said))


def hear_report(said: Any) -> None:
    """A site's scores."""
    try:
        check_scores(convert.hear_scores(said))
    except ValueError as odd:
        raise Refused("scores", str(odd)) from None


HEARD: tuple[tuple[type[Message], Callable[[Any], object]], ...] = (
    (pb.JoinRequest, hear_join),
    (pb.JoinAnswer, convert.hear_joined),
    (pb.VisitAnswer, convert.hear_visited),
    (pb.NextTaskRequest, convert.hear_marks),
    (pb.NextTaskRequest, convert.hear_marks_before),
    (pb.NextTaskAnswer, convert.hear_work),
    (pb.OfferRequest, convert.hear_offer),
    (pb.Receipt, convert.hear_receipt),
    (pb.Blob, convert.hear_blob),
    (pb.ReportRequest, hear_report),
)
BYTES: tuple[Callable[[bytes], object], ...] = (
    convert.hear_refusal,
    convert.hear_signed,
    convert.hear_fetch,
    convert.hear_store,
    convert.read_receipt,
    lambda content: convert.weigh_parcel(content, pb.OfferRequest),
    lambda content: convert.weigh_parcel(content, pb.NextTaskAnswer),
)


def _seeds() -> list[bytes]:
    said: list[Message] = [
        *map(convert.say_description, (PICTURES, TABLE, NUMBERS)),
        *map(convert.say_joined, (JOINED, Gathering(("why",), sums=True), None)),
        convert.say_visited(Visited(JOINED, ASSIGNMENT)),
        *map(convert.say_work, (ASSIGNMENT, Over("finished", "words", 3), None)),
        convert.say_marks((Mark(1, 1), Mark(2, 1)), wait_seconds=1.0, before=(Mark(1, 1),)),
        convert.say_offer(Offer("000001-1-train", HEADER, BLOB, SEAL)),
        convert.say_receipt(Receipt("run-1", "000001-1-train", "a", DIGEST)),
        convert.say_scores("000001-1-train", {"pre/test/combined": [3.0, 4.0, 0.75, 0.5625, 0.5]}),
    ]
    return [
        *(one.SerializeToString() for one in said),
        convert.say_refusal(Refused("late", "too late")),
        convert.say_fetch(DIGEST, 9),
        convert.say_store("000001-1-train", 9),
    ]


@target("calls", Refused, seeds=_seeds, words=(b"a/b", DIGEST.encode(), b"\xed\xa0\x80"))
def hear(content: bytes) -> None:
    """As each kind of message: what cannot be one is refused by whoever calls."""
    for form, take in HEARD:
        try:
            message = form.FromString(content)
        except DecodeError:
            continue
        try:
            take(message)
        except Refused:
            continue
    for read in BYTES:
        try:
            read(content)
        except Refused:
            continue


@target("status", UserError, seeds=lambda: [status_json.write(RunStatus("r", "fedavg", "running", 1, 9, 1))])
def read_status(content: bytes) -> None:
    """What `pfl status` gets from a coordinator."""
    status_json.read(content)
