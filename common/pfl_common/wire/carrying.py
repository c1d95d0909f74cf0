"""Control calls that carry a parcel: the one that hands in all of a small task, and how much of a message is parcel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar  # Any: a message of the form that its weigher is listed under

from google.protobuf.message import DecodeError, Message

from pfl_common import evaluation
from pfl_common.spec.messages import Offer, Scores
from pfl_common.spec.run import Kind
from pfl_common.wire import convert, parts
from pfl_common.wire import coordinator_pb2 as pb

Carrying = TypeVar("Carrying", bound=Message)

_NAMED = 160
"""Bytes of an evaluation or a told number beside its values: name, lengths."""
REPORT_BYTES = (4 << 10) + (
    evaluation.MOST * (evaluation.WIDTH * 8 + _NAMED) + evaluation.MOST_TOLD * (3 * 8 + _NAMED)
)
"""A report is no longer."""
QUESTION_BYTES = 4 << 10
"""Nor a question for work."""
HAND_IN_BYTES = convert.CARRYING_BYTES + REPORT_BYTES + QUESTION_BYTES
"""Nor all three calls in one."""


def say_hand_in(
    offer: Offer, content: bytes, scores: Scores, question: pb.NextTaskRequest
) -> pb.HandInRequest:
    """An update with its bytes, the evaluation of its task if there is one, and the question for the next."""
    said = pb.HandInRequest(offer=convert.say_offer(offer), next=question)
    said.offer.content = content
    if scores:
        said.report.CopyFrom(convert.say_scores(offer.key, scores))
    return said


def read_carrying(body: bytes, form: type[Carrying]) -> Carrying | None:
    """A message of a form that carries parcels, taken apart; None if it is of another, or none of ours."""
    most, _ = _CARRIED.get(form, (-1, None))
    # Nobody has vouched for these bytes yet: what is longer than any of ours is not even taken apart.
    if len(body) > most:
        return None
    with suppress(DecodeError):
        return form.FromString(body)
    return None


def weigh(said: Message | None, length: int) -> tuple[Kind, int]:
    """The bytes of the parcel that a call or an answer carries, and its kind of task; of what is too long for any of
    ours, or cannot be read, none. Both ends count these bytes alike, whatever becomes of them.
    """
    most, weigh_one = _CARRIED.get(type(said), (-1, None))
    if weigh_one is not None and length <= most:
        with suppress(ValueError):
            return weigh_one(said)
    return Kind.TRAIN, 0


def _weigh_given(said: pb.NextTaskAnswer) -> tuple[Kind, int]:
    given = said.assignment
    return parts.hear_kind(given.task.kind), len(given.content)


def _weigh_next(said: pb.HandInAnswer) -> tuple[Kind, int]:
    return _weigh_given(said.next)


# Only training sends anything up.
_CARRIED: dict[type[object], tuple[int, Callable[[Any], tuple[Kind, int]]]] = {
    pb.OfferRequest: (convert.CARRYING_BYTES, lambda said: (Kind.TRAIN, len(said.content))),
    pb.HandInRequest: (HAND_IN_BYTES, lambda said: (Kind.TRAIN, len(said.offer.content))),
    pb.NextTaskAnswer: (convert.CARRYING_BYTES, _weigh_given),
    pb.HandInAnswer: (convert.CARRYING_BYTES, _weigh_next),
}
