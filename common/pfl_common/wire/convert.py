"""Converts plain values to the messages of `wire` and back, without loss.

`say_…` never fails; `hear_…` raises `Refused("bad_request")` for what no program of ours would have said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Literal

from google.protobuf.message import DecodeError

from pfl_common.errors import Refused
from pfl_common.sealing.calls import NoSession, SignedCall
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    Scores,
    Visited,
    one_line,
    shorten,
)
from pfl_common.spec.run import Description, InputKind
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire import parts, refusal_pb2

FRAME_BYTES = (1 << 20) + 16
"""One sealed frame: 1 MiB and its tag."""
BESIDE_BYTES = 128 << 10
"""A parcel up to this size goes with its control call: a stream would cost more, and there is little to go on from."""
CARRYING_BYTES = BESIDE_BYTES + (64 << 10)
"""A call or an answer that carries a parcel is no longer, with all else that it says."""
COORDINATOR = "pfl.v1.Coordinator"
OPERATOR = "pfl.v1.Operator"
ENROLMENT = "pfl.v1.Enrolment"
ADMINISTRATION = "pfl.v1.Administration"
BULK = "pfl.v1.Bulk"
STORE_METADATA = "pfl-store-bin"
REFUSAL_METADATA = "pfl-refusal-bin"
SIGNED_METADATA = "pfl-signed-bin"
ANSWER_METADATA = "pfl-answer-bin"

REASONS = frozenset(name.removeprefix("REASON_").lower() for name in refusal_pb2.Reason.keys())  # noqa: SIM118  # no mapping
FINAL_REASONS = frozenset(
    {
        "not_a_site",
        "not_the_operator",
        "not_in_the_run",
        "classes",
        "shape",
        "too_late_to_join",
        "no_newcomers",
    }
) | {"unprintable", "revoked", "denied"}
"""After these, trying again does not help: a person has to act."""

_LONGEST_WORDS = 2000
_DIGITS = frozenset("0123456789abcdef")
_INPUTS: dict[int, InputKind] = {
    pb.INPUT_IMAGE: "image",
    pb.INPUT_ARRAY: "array",
    pb.INPUT_WINDOWS: "windows",
    pb.INPUT_TOKENS: "tokens",
    pb.INPUT_TABLE: "table",
}


def say_refusal(refused: Refused) -> bytes:
    """A refusal as the bytes of the metadata; a code that is not in the list goes with the words."""
    known = refused.code in REASONS
    words = refused.words if known else f"{refused.code}: {refused.words}"
    # Metadata is short by nature: peers refuse more than 8 KiB of it.
    cut = words.encode(errors="replace")[:_LONGEST_WORDS].decode(errors="ignore")
    reason = refused.code if known else "other"
    said = refusal_pb2.Refusal(reason=f"REASON_{reason.upper()}", words=cut)
    if isinstance(refused, NoSession):
        said.session, said.card = refused.session, refused.card
    return said.SerializeToString()


def hear_refusal(content: bytes) -> Refused:
    """The other side's refusal, as the exception it raised; an unknown reason is `other`."""
    with _as_bad_request("a refusal"):
        refusal = refusal_pb2.Refusal.FromString(content)
    known = refusal.reason in refusal_pb2.Reason.values()
    code = refusal_pb2.Reason.Name(refusal.reason) if known else "other"
    words = one_line(refusal.words, _LONGEST_WORDS)
    if refusal.session:
        return NoSession(words, session=refusal.session, card=refusal.card)
    return Refused(code.removeprefix("REASON_").lower(), words)


def say_signed(signed: SignedCall) -> bytes:
    """Who calls, as the bytes of the metadata."""
    return pb.Signed(
        site=signed.site, session=signed.session, counter=signed.counter, signature=signed.signature
    ).SerializeToString()


def hear_signed(content: bytes | str | None) -> SignedCall:
    """Who says that it calls."""
    if not isinstance(content, bytes):
        raise Refused(
            "seal", f"a call without {SIGNED_METADATA}; expected: a signed one, compare the versions"
        )
    with _as_bad_request("a signature"):
        said = pb.Signed.FromString(content)
    return SignedCall(said.site, said.session, said.counter, said.signature)


def say_description(description: Description) -> pb.JoinRequest:
    """A site's description of its data, as a message."""
    return pb.JoinRequest(
        input=f"INPUT_{description.kind.upper()}",
        shape=description.shape,
        classes=description.classes,
        samples=description.samples,
        warnings=description.warnings,
        sizes=[pb.PictureSize(height=high, width=wide, count=n) for high, wide, n in description.sizes],
        values=f"VALUES_{description.values.upper()}",
        low=description.low,
        high=description.high,
        moments=None if description.moments is None else pb.Moments(**asdict(description.moments)),
        data=description.data,
        vocabulary=parts.say_vocabulary(description) if description.numbering else None,
        columns=description.columns,
        table=[pb.TableColumn(**asdict(column)) for column in description.table],
    )


def hear_description(said: pb.JoinRequest) -> Description:
    """A site's description of its data, from a message."""
    with _as_bad_request("a description of data"):
        parts.check_counts(said)
        return Description(
            shape=tuple(said.shape),
            classes=tuple(said.classes),
            samples=said.samples if said.HasField("samples") else None,
            kind=_INPUTS[said.input],
            warnings=tuple(said.warnings),
            sizes=tuple((size.height, size.width, size.count) for size in said.sizes),
            values=parts.hear_values(said.values, _INPUTS[said.input]),
            low=said.low,
            high=said.high,
            moments=parts.hear_moments(said.moments) if said.HasField("moments") else None,
            data=said.data,
            numbering=parts.hear_numbering(said.vocabulary.numbering),
            words=tuple(said.vocabulary.words),
            tokens=said.vocabulary.tokens,
            columns=tuple(said.columns),
            table=tuple(map(parts.hear_column, said.table)),
        )


def say_joined(joined: Joined | Gathering | None) -> pb.JoinAnswer:
    """The run a site has been taken into; else still gathering."""
    if joined is None:
        return pb.JoinAnswer(gathering=pb.Done())
    if isinstance(joined, Gathering):
        return pb.JoinAnswer(gathering=pb.Done(), warnings=shorten(joined.words), sums=joined.sums)
    return pb.JoinAnswer(warnings=shorten(joined.warnings), joined=_say_run(joined))


def hear_joined(said: pb.JoinAnswer) -> Joined | Gathering | None:
    """The run this site has been taken into; else still gathering."""
    with _as_bad_request("an answer to Join"):
        words = shorten(said.warnings)
        if _chosen(said, "answer") == "gathering":
            return Gathering(words, sums=said.sums) if words or said.sums else None
        return _hear_run(said.joined, words)


def say_visited(visited: Visited | None) -> pb.VisitAnswer:
    """A run's state for a site that takes part in no round, or nothing yet."""
    if visited is None:
        return pb.VisitAnswer(nothing=pb.Done())
    run, last = _say_run(visited.joined), _say_assignment(visited.last)
    return pb.VisitAnswer(visited=pb.Visited(run=run, last=last))


def hear_visited(said: pb.VisitAnswer) -> Visited | None:
    """A run's state for a site that takes part in no round, or nothing yet."""
    with _as_bad_request("an answer to Visit"):
        if _chosen(said, "answer") == "nothing":
            return None
        return Visited(_hear_run(said.visited.run, ()), _hear_assignment(said.visited.last))


def _say_run(joined: Joined) -> pb.Joined:
    return pb.Joined(
        spec=joined.spec.encode(),
        init=say_blob(joined.init),
        seal=parts.say_seal(joined.seal),
        card=joined.card,
    )


def _hear_run(found: pb.Joined, words: tuple[str, ...]) -> Joined:
    seal = parts.hear_seal(found.seal)
    return Joined(found.spec.decode(), hear_blob(found.init), seal, found.card, words)


def say_marks(
    marks: tuple[Mark, ...],
    *,
    wait_seconds: float,
    beside_bytes: int = 0,
    before: tuple[Mark, ...] = (),
) -> pb.NextTaskRequest:
    """The vault's generations, newest first, and those of the run before; how long the site will wait, and what may
    come with the task.
    """
    said, earlier = (
        [pb.Mark(round=mark.round, attempt=mark.attempt) for mark in each] for each in (marks, before)
    )
    return pb.NextTaskRequest(
        marks=said, wait_seconds=wait_seconds, beside_bytes=beside_bytes, before=earlier
    )


def hear_marks(said: pb.NextTaskRequest) -> tuple[Mark, ...]:
    """The vault's generations, newest first."""
    with _as_bad_request("a list of generations"):
        return parts.hear_marks(said.marks)


def hear_marks_before(said: pb.NextTaskRequest) -> tuple[Mark, ...]:
    """Those of the run that this one begins from."""
    with _as_bad_request("a list of generations"):
        return parts.hear_marks(said.before)


def say_work(work: Assignment | Over | None) -> pb.NextTaskAnswer:
    """Work, the end of all work, or nothing yet."""
    if work is None:
        return pb.NextTaskAnswer(nothing=pb.Done())
    if isinstance(work, Over):
        ending = f"ENDING_{work.status.upper()}"
        return pb.NextTaskAnswer(over=pb.Over(ending=ending, words=work.words, counted=work.counted))
    return pb.NextTaskAnswer(assignment=_say_assignment(work))


def hear_work(said: pb.NextTaskAnswer) -> Assignment | Over | None:
    """Work, the end of all work, or nothing yet."""
    with _as_bad_request("an answer to NextTask"):
        chosen = _chosen(said, "answer")
        if chosen == "nothing":
            return None
        if chosen == "over":
            return parts.hear_over(said.over)
        return _hear_assignment(said.assignment)


def _say_assignment(work: Assignment) -> pb.Assignment:
    return pb.Assignment(
        task=parts.say_task(work.task),
        header=parts.say_header(work.header),
        blob=say_blob(work.blob),
        seal=parts.say_seal(work.seal),
    )


def _hear_assignment(work: pb.Assignment) -> Assignment:
    return Assignment(
        parts.hear_task(work.task),
        parts.hear_header(work.header),
        hear_blob(work.blob),
        parts.hear_seal(work.seal),
    )


def say_offer(offer: Offer) -> pb.OfferRequest:
    """An upload that is ready."""
    return pb.OfferRequest(
        key=offer.key,
        header=parts.say_header(offer.header),
        blob=say_blob(offer.blob),
        seal=parts.say_seal(offer.seal),
    )


def hear_offer(said: pb.OfferRequest) -> Offer:
    """An upload that is ready."""
    with _as_bad_request("an offer"):
        return Offer(
            said.key, parts.hear_header(said.header), hear_blob(said.blob), parts.hear_seal(said.seal)
        )


def say_receipt(receipt: Receipt) -> pb.Receipt:
    """The confirmation of an upload."""
    return pb.Receipt(
        run=receipt.run,
        key=receipt.key,
        site=receipt.site,
        digest=receipt.digest,
        signature=receipt.signature,
    )


def hear_receipt(said: pb.Receipt) -> Receipt:
    """The confirmation of an upload."""
    return Receipt(said.run, said.key, said.site, said.digest, said.signature)


def read_receipt(content: bytes) -> Receipt:
    """The answer to Store."""
    with _as_bad_request("an answer to Store"):
        return hear_receipt(pb.Receipt.FromString(content))


def say_fetch(digest: str, offset: int) -> bytes:
    """Which bytes are wanted, and how many of them are there already."""
    return pb.FetchRequest(digest=digest, offset=offset).SerializeToString()


def hear_fetch(content: bytes) -> tuple[str, int]:
    """Which bytes are wanted, and how many of them are there already."""
    with _as_bad_request("a Fetch"):
        said = pb.FetchRequest.FromString(content)
    return check_digest(said.digest), said.offset


def say_store(key: str, offset: int) -> bytes:
    """Which upload follows, and from where on."""
    return pb.StoreRequest(key=key, offset=offset).SerializeToString()


def hear_store(content: bytes | str | None) -> tuple[str, int]:
    """Which upload follows, and from where on."""
    if not isinstance(content, bytes):
        raise Refused("bad_request", f"a Store without {STORE_METADATA}; expected a StoreRequest there")
    with _as_bad_request("a Store"):
        said = pb.StoreRequest.FromString(content)
    return said.key, said.offset


def say_blob(blob: Blob) -> pb.Blob:
    """The name and size of bytes."""
    return pb.Blob(digest=blob.digest, size=blob.size)


def hear_blob(said: pb.Blob) -> Blob:
    """The name and size of bytes; the name becomes part of a path, so it must be nothing but digits."""
    return Blob(check_digest(said.digest), said.size)


def check_digest(digest: str) -> str:
    """Give the digest back if it is a SHA-256 in hexadecimal digits."""
    if len(digest) != 64 or not _DIGITS.issuperset(digest):
        raise Refused("bad_request", f"a digest of {len(digest)} characters; expected 64 digits 0-9 a-f")
    return digest


def say_scores(key: str, scores: Scores) -> pb.ReportRequest:
    """An evaluation of one task."""
    vectors = {name: pb.Vector(values=values) for name, values in scores.items()}
    return pb.ReportRequest(key=key, scores=vectors)


def hear_scores(said: pb.ReportRequest) -> Scores:
    """An evaluation, whose names and numbers are checked where it is expected."""
    with _as_bad_request("an evaluation"):
        return parts.hear_scores(said)


def _chosen(
    said: pb.JoinAnswer | pb.NextTaskAnswer | pb.OfferAnswer | pb.VisitAnswer, group: Literal["answer"]
) -> str:
    chosen = said.WhichOneof(group)
    if chosen is None:
        raise ValueError(group)
    return str(chosen)


@contextmanager
def _as_bad_request(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError, DecodeError):
        seen = f"{what} that cannot be read; expected one of this release: compare the versions"
        raise Refused("bad_request", seen) from None
