"""Parties with keys and cards, and parcels between them, as the tests of sealing want them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.sealing import (
    CODES,
    FRAME,
    TAG,
    Envelope,
    Sealed,
    Tampered,
    bind,
    open_to_bytes,
    seal_bytes,
    sign_down,
    sign_up,
    unwrap,
    verify_down,
    verify_up,
    wrap,
)
from pfl_common.spec.run import Header, Kind

PLAIN = os.urandom(2 * FRAME + 100)
SEALED_FRAME = FRAME + TAG
START, END = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 2, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Party:
    """Somebody with keys, and the card that others know them by."""

    keys: EnvelopeKeys
    card: Card

    @property
    def name(self) -> str:
        """What the card says."""
        return self.card.name


@dataclass(frozen=True)
class Parcel:
    """Sealed bytes and what travels beside them."""

    path: Path
    sealed: Sealed
    envelope: Envelope


def make_party(name: str) -> Party:
    """A party with fresh keys."""
    keys = EnvelopeKeys.generate()
    return Party(keys, Card(name, *keys.public(), "f" * 16, START, END))


COORDINATOR = make_party("coordinator")
SITE = make_party("hospital_a")
OTHER = make_party("hospital_b")


def write_header(direction: str, **changes: object) -> bytes:
    """A header of round 3, with the hash of the state the round started from, and these changes."""
    sender = SITE.name if direction == "up" else COORDINATOR.name
    header = Header("run-a", 3, 1, Kind.TRAIN, "train", direction, sender, "0" * 32)
    fields = {**json.loads(header.to_json()), "state": "ab" * 16, **changes}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def send(content: bytes, path: Path, header: bytes, *, sender: Party, recipient: Party) -> Parcel:
    """Seal, wrap and sign as the header's direction asks."""
    sealed = seal_bytes(content, path, header)
    wrapped = wrap(sealed.content_key, recipient.card, header_hash=sealed.binding.hash)
    sign = sign_up if sealed.binding.direction == "up" else sign_down
    signature = sign(sender.keys, sealed, wrap=wrapped)
    return Parcel(path, sealed, Envelope(header, sealed.digest, sealed.size, wrapped, signature))


def send_up(content: bytes, path: Path, **changes: object) -> Parcel:
    """A site's update."""
    return send(content, path, write_header("up", **changes), sender=SITE, recipient=COORDINATOR)


def send_down(content: bytes, path: Path, **changes: object) -> Parcel:
    """A coordinator's broadcast, with the wrap of one site."""
    return send(content, path, write_header("down", **changes), sender=COORDINATOR, recipient=SITE)


def receive_up(path: Path, envelope: Envelope) -> bytes:
    """What the coordinator reads in an update said to be the site's."""
    vouched = verify_up(SITE.card, envelope)
    key = unwrap(
        envelope.wrap, COORDINATOR.keys, name=COORDINATOR.name, header_hash=bind(envelope.header).hash
    )
    return bytes(open_to_bytes(path, key=key, vouched=vouched))


def receive_down(path: Path, envelope: Envelope) -> bytes:
    """What the site reads in a broadcast said to be the coordinator's."""
    vouched = verify_down(COORDINATOR.card, envelope)
    key = unwrap(envelope.wrap, SITE.keys, name=SITE.name, header_hash=vouched.binding.hash)
    return bytes(open_to_bytes(path, key=key, vouched=vouched))


def same(expected: bytes, actual: bytes | bytearray | memoryview) -> bool:
    """Whether they are equal; asked so, a test that fails does not print the difference of two megabytes."""
    return expected == actual


WAYS = {"up": (send_up, receive_up), "down": (send_down, receive_down)}


def code_of(path: Path, envelope: Envelope, way: str) -> str:
    """The reason for which a parcel is refused."""
    with pytest.raises(Tampered) as caught:
        WAYS[way][1](path, envelope)
    assert caught.value.code in CODES
    return caught.value.code


def frames_of(parcel: Parcel) -> list[bytes]:
    """The three sealed frames."""
    whole = parcel.path.read_bytes()
    return [whole[at : at + SEALED_FRAME] for at in range(0, len(whole), SEALED_FRAME)]
