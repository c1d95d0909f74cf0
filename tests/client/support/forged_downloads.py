"""Downloads that are not the coordinator's own for the task they come with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pfl_common import sealing
from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.sealing import FRAME, TAG
from pfl_common.spec.messages import Assignment, Blob, Seal, header_up
from pfl_common.spec.run import Kind, Task
from tests.client.support.sealed_line import OTHER, PLAIN, SITE, Post, Sent

SEALED_FRAME = FRAME + TAG
SECOND = Task(Kind.TRAIN, 2, 3, since=1)

Forge: TypeAlias = Callable[[Post], Sent]


def spoilt(spoil: Callable[[bytes], bytes]) -> Forge:
    """The coordinator's own parcel, with its bytes changed on their way."""

    def forge(post: Post) -> Sent:
        assignment, raw = post.send()
        return assignment, spoil(raw)

    return forge


def frames(*order: int) -> Forge:
    """The frames in another order."""

    def spoil(raw: bytes) -> bytes:
        found = [raw[at : at + SEALED_FRAME] for at in range(0, len(raw), SEALED_FRAME)]
        assert 3 == len(found)
        return b"".join(found[index] for index in order)

    return spoilt(spoil)


def flipped(at: int) -> Forge:
    """One bit is another."""

    def spoil(raw: bytes) -> bytes:
        changed = bytearray(raw)
        changed[at] ^= 1
        return bytes(changed)

    return spoilt(spoil)


def resealed(change: Callable[[Assignment], Assignment]) -> Forge:
    """The coordinator's own parcel, with other words beside it."""

    def forge(post: Post) -> Sent:
        assignment, raw = post.send()
        return change(assignment), raw

    return forge


def seal_flipped(field: str, index: int) -> Forge:
    """One bit of wrap or signature is another."""

    def change(assignment: Assignment) -> Assignment:
        content = bytearray(getattr(assignment.seal, field))
        content[index] ^= 1
        return replace(assignment, seal=replace(assignment.seal, **{field: bytes(content)}))

    return resealed(change)


def for_another_site(post: Post) -> Sent:
    """Genuine, but made for the other site: a method that sends each its own has one header for all."""
    return post.send(site=OTHER)


def with_anothers_wrap(post: Post) -> Sent:
    """This site's parcel, beside the other site's wrap of another one."""
    (mine, raw), (theirs, _) = post.send(), post.send(site=OTHER)
    return replace(mine, seal=replace(mine.seal, wrap=theirs.seal.wrap)), raw


def handed_on(post: Post) -> Sent:
    """The other site's own parcel, with its key wrapped for this site by the other, who knows it."""
    theirs, raw = post.send(b"for the other site alone", site=OTHER)
    bound = sealing.bind(theirs.header.to_json().encode()).hash
    keys = post.keyrings[OTHER].envelope_keys()
    key = sealing.unwrap(theirs.seal.wrap, keys, name=OTHER, header_hash=bound)
    card = post.members.authority.card_of(SITE, now=post.members.now)
    wrapped = sealing.wrap(key, card, header_hash=bound)
    return replace(theirs, seal=replace(theirs.seal, wrap=wrapped)), raw


def made_by_a_fellow_site(post: Post) -> Sent:
    """A parcel of the other site's own making, signed with its keys."""
    return post.send(b"poison", keys=post.keyrings[OTHER].envelope_keys())


def by_another_key(post: Post) -> Sent:
    """A stranger's signature."""
    return post.send(keys=EnvelopeKeys.generate())


def older_under_the_new_header(post: Post) -> Sent:
    """What was sent in another round, under the header of this one."""
    older, raw = post.send(task=SECOND)
    now, _ = post.send()
    return replace(now, blob=older.blob, seal=older.seal), raw


def older_under_its_own(post: Post) -> Sent:
    """What was sent in another round, under its own header, for this round's task."""
    older, raw = post.send(task=SECOND)
    return replace(older, task=Task(Kind.TRAIN, 1, 3)), raw


def wrap_of_another_task(post: Post) -> Sent:
    """This round's broadcast, with the wrap of another."""
    (now, raw), (older, _) = post.send(), post.send(task=SECOND)
    return replace(now, seal=Seal(older.seal.wrap, now.seal.signature)), raw


def seal_of_another_task(post: Post) -> Sent:
    """This round's broadcast, with wrap and signature of another."""
    (now, raw), (older, _) = post.send(), post.send(task=SECOND)
    return replace(now, seal=older.seal), raw


def another_header(**changes: object) -> Forge:
    """Genuine under a header that this task does not give."""

    def forge(post: Post) -> Sent:
        return post.send(**changes)

    return forge


def header_rewritten(**changes: object) -> Forge:
    """A field of the header that the task leaves open is another than was signed."""
    return resealed(lambda sent: replace(sent, header=replace(sent.header, **changes)))


def an_upload_sent_back(post: Post) -> Sent:
    """What a site sealed for the coordinator, as a download."""
    header = header_up(post.spec, Task(Kind.TRAIN, 1, 3), SITE, state="state")
    blob, seal, raw = post.seal(PLAIN, header, keys=post.keyrings[SITE].envelope_keys())
    return Assignment(Task(Kind.TRAIN, 1, 3), header, blob, seal), raw


FORGED: dict[str, Forge] = {
    "nothing": spoilt(lambda raw: b""),
    "cut by a byte": spoilt(lambda raw: raw[:-1]),
    "cut by a frame": frames(0, 1),
    "frames swapped": frames(1, 0, 2),
    "a frame in another's place": frames(0, 0, 2),
    "a frame doubled": frames(0, 1, 1, 2),
    "the last frame doubled": frames(0, 1, 2, 2),
    "a byte appended": spoilt(lambda raw: raw + b"\0"),
    "a bit at the start": flipped(0),
    "a bit in a tag": flipped(FRAME),
    "a bit in the middle": flipped(SEALED_FRAME + 77),
    "a bit at the end": flipped(-1),
    "zeros": spoilt(lambda raw: bytes(len(raw))),
    "the plain bytes": spoilt(lambda raw: PLAIN),
    "no seal": resealed(lambda sent: replace(sent, seal=Seal())),
    "a bit in the wrap's key": seal_flipped("wrap", 0),
    "a bit in the wrap": seal_flipped("wrap", 40),
    "a bit in the wrap's tag": seal_flipped("wrap", -1),
    "a bit in the signature": seal_flipped("signature", 5),
    "another digest": resealed(lambda sent: replace(sent, blob=replace(sent.blob, digest="ab" * 32))),
    "another size": resealed(lambda sent: replace(sent, blob=Blob(sent.blob.digest, sent.blob.size - 1))),
    "an impossible size": resealed(lambda sent: replace(sent, blob=Blob(sent.blob.digest, 3))),
    "for another site": for_another_site,
    "another's wrap": with_anothers_wrap,
    "handed on": handed_on,
    "made by a fellow site": made_by_a_fellow_site,
    "by another key": by_another_key,
    "older, new header": older_under_the_new_header,
    "older, own header": older_under_its_own,
    "another task's wrap": wrap_of_another_task,
    "another task's seal": seal_of_another_task,
    "another run": another_header(run="run-2"),
    "another attempt": another_header(attempt=2),
    "another kind": another_header(kind=Kind.FINISH),
    "another phase": another_header(phase="calibrate"),
    "another manifest": another_header(manifest="ab" * 16),
    "another sender": another_header(sender=OTHER),
    "another state": header_rewritten(state="other"),
    "another group": header_rewritten(groups=("u",)),
    "an upload": an_upload_sent_back,
}
