"""Offers that are not what they say, each with the code it must be refused with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.spec.messages import Blob, Offer, Seal
from pfl_common.spec.run import Kind
from tests.common.sealing.members import offer_of, vouch
from tests.server.support.federation import build_header
from tests.server.support.scene import TASK
from tests.server.support.sealed_scene import SealedScene

Forge: TypeAlias = Callable[[SealedScene], tuple[Offer, bytes]]


def by_another_key(scene: SealedScene) -> tuple[Offer, bytes]:
    """Everything right, but signed by a stranger."""
    return scene.offer(keys=EnvelopeKeys.generate())


def by_another_site(scene: SealedScene) -> tuple[Offer, bytes]:
    """Site b speaks under a's name with its own keys."""
    return scene.offer(keys=scene.members.keyring("b").envelope_keys())


def for_another_coordinator(scene: SealedScene) -> tuple[Offer, bytes]:
    """Genuine, but wrapped for a key this coordinator does not hold."""
    offer, _ = scene.offer()
    other = replace(scene.members.coordinator, receiving=EnvelopeKeys.generate().public()[1])
    keys = scene.members.keyring("a").envelope_keys()
    plain = (scene.mail / "plain-a").read_bytes()
    return offer_of(keys, plain, header=offer.header, task=TASK, to=other, file=scene.mail / "x")


def of_site_b(scene: SealedScene) -> tuple[Offer, bytes]:
    """Another site's bytes and wrap, signed anew by a under its own header."""
    theirs, raw = scene.offer("b")
    header = replace(theirs.header, sender="a")
    keys = scene.members.keyring("a").envelope_keys()
    seal = vouch(keys, header, theirs.blob, wrap=theirs.seal.wrap)
    return Offer(TASK.key, header, theirs.blob, seal), raw


def whole_offer_of_b(scene: SealedScene) -> tuple[Offer, bytes]:
    """Another site's offer, repeated as it was."""
    return scene.offer("b")


def renamed_offer_of_b(scene: SealedScene) -> tuple[Offer, bytes]:
    """Another site's offer, with a's name written into its header."""
    theirs, raw = scene.offer("b")
    return replace(theirs, header=replace(theirs.header, sender="a")), raw


def of_another(**changes: object) -> Forge:
    """A genuine parcel of another round, attempt, run or state, offered as it is."""

    def forge(scene: SealedScene) -> tuple[Offer, bytes]:
        return scene.offer(**changes)

    return forge


def redated(**changes: object) -> Forge:
    """A genuine parcel of another round, attempt, run or state, under the header that is awaited."""

    def forge(scene: SealedScene) -> tuple[Offer, bytes]:
        offer, raw = scene.offer(**changes)
        return replace(offer, header=build_header(scene.spec, "a", TASK, offer.header.groups)), raw

    return forge


def seal_changed(field: str, index: int) -> Forge:
    """One bit of the wrap or of the signature is another."""

    def forge(scene: SealedScene) -> tuple[Offer, bytes]:
        offer, raw = scene.offer()
        content = bytearray(getattr(offer.seal, field))
        content[index] ^= 1
        return replace(offer, seal=replace(offer.seal, **{field: bytes(content)})), raw

    return forge


def without_seal(scene: SealedScene) -> tuple[Offer, bytes]:
    """As a simulation's site would offer: in the open."""
    offer, raw = scene.offer()
    return replace(offer, seal=Seal()), raw


def in_the_open(scene: SealedScene) -> tuple[Offer, bytes]:
    """Plain bytes under their SHA-256, of a plain size."""
    offer, _ = scene.offer()
    raw = (scene.mail / "plain-a").read_bytes()
    return replace(offer, seal=Seal(), blob=Blob(hashlib.sha256(raw).hexdigest(), len(raw))), raw


def another_digest(scene: SealedScene) -> tuple[Offer, bytes]:
    """The digest of other bytes."""
    offer, raw = scene.offer()
    return replace(offer, blob=replace(offer.blob, digest="ab" * 32)), raw


def one_byte_more(scene: SealedScene) -> tuple[Offer, bytes]:
    """A size that the manifest does not give."""
    offer, raw = scene.offer()
    return replace(offer, blob=replace(offer.blob, size=offer.blob.size + 1)), raw


def one_frame_less(scene: SealedScene) -> tuple[Offer, bytes]:
    """A shorter parcel, genuinely sealed and signed."""
    offer, _ = scene.offer()
    plain = (scene.mail / "plain-a").read_bytes()[:-4]
    keys = scene.members.keyring("a").envelope_keys()
    return offer_of(
        keys,
        plain,
        header=offer.header,
        task=TASK,
        to=scene.members.coordinator,
        file=scene.mail / "x",
    )


FORGED: list[tuple[Forge, str]] = [
    (by_another_key, "seal"),
    (by_another_site, "seal"),
    (for_another_coordinator, "seal"),
    (of_site_b, "seal"),
    (whole_offer_of_b, "header"),
    (renamed_offer_of_b, "seal"),
    (of_another(round=2), "header"),
    (of_another(attempt=2), "header"),
    (of_another(run="run-2"), "header"),
    (of_another(state="ab" * 32), "header"),
    (of_another(manifest="ab" * 16), "header"),
    (of_another(direction="down"), "header"),
    (redated(round=2), "seal"),
    (redated(attempt=2), "seal"),
    (redated(run="run-2"), "seal"),
    (redated(state="ab" * 32), "seal"),
    (redated(manifest="ab" * 16), "seal"),
    (redated(kind=Kind.EVALUATE), "seal"),
    (seal_changed("wrap", 0), "seal"),
    (seal_changed("wrap", 79), "seal"),
    (seal_changed("signature", 0), "seal"),
    (seal_changed("signature", 63), "seal"),
    (without_seal, "seal"),
    (in_the_open, "size"),
    (another_digest, "seal"),
    (one_byte_more, "size"),
    (one_frame_less, "size"),
]
