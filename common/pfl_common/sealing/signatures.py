"""Signatures over parcels in both directions, and over the coordinator's receipts.

Going up one recipient knows the key, and the hash of all frame tags stands for the bytes. Going down many
sites know it, and with a GCM key one can make other bytes with the same tags: there the hash of the sealed
bytes themselves is signed, SHA-256 or BLAKE3 as the header says, each under a label of its own. Both ways
the recipient's wrap is signed too: with the key one can make a wrap for anybody, and so hand on what was
sealed for one site to another that expects the same header.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature

from pfl_common.identity.cards import COORDINATOR, Card, EnvelopeKeys
from pfl_common.sealing.frame_format import Binding, Tampered, bind, plain_size
from pfl_common.sealing.parcels import Sealed, Vouched
from pfl_common.spec.digests import Digests
from pfl_common.spec.messages import Receipt
from pfl_common.spec.run import Direction, Header

_PARCEL_LABELS: dict[tuple[Direction, Digests], bytes] = {
    ("down", "sha256"): b"pfl parcel down 1\0",
    ("down", "blake3"): b"pfl parcel down 2\0",
    ("up", "sha256"): b"pfl parcel up 1\0",
}
_RECEIPT_LABEL = b"pfl receipt 1\0"


@dataclass(frozen=True)
class Envelope:
    """The data that travel beside the sealed bytes; `digest` is as in `Sealed`, `wrap` is the reader's own."""

    header: Header | bytes
    digest: str
    size: int
    wrap: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def sign_down(keys: EnvelopeKeys, parcel: Sealed | Vouched, *, wrap: bytes) -> bytes:
    """The coordinator's signature for one recipient of a parcel that it sealed, now or before a restart."""
    _check_direction(parcel.binding, "down")
    return keys.signing.sign(_say_parcel(parcel, wrap))


def verify_down(card: Card, envelope: Envelope) -> Vouched:
    """Check that the party of this card signed this parcel; the bytes may be fetched before or after."""
    return _verify(card, envelope, "down")


def sign_up(keys: EnvelopeKeys, parcel: Sealed | Vouched, *, wrap: bytes) -> bytes:
    """A site's signature over the parcel it seals for the coordinator."""
    _check_direction(parcel.binding, "up")
    return keys.signing.sign(_say_parcel(parcel, wrap))


def verify_up(card: Card, envelope: Envelope) -> Vouched:
    """Check that the party of this card signed this parcel, before its first byte is taken."""
    return _verify(card, envelope, "up")


def sign_receipt(keys: EnvelopeKeys, receipt: Receipt) -> bytes:
    """The coordinator's signature under a receipt; the same receipt always gets the same one."""
    return keys.signing.sign(_say_receipt(receipt))


def verify_receipt(card: Card, receipt: Receipt, signature: bytes) -> None:
    """Refuse a receipt that is not the coordinator's; what it says of a signature itself is not part of it."""
    if card.name != COORDINATOR:
        raise Tampered("signature", f"a receipt signed by {card.name}; expected: by the {COORDINATOR}")
    _check(card, signature, _say_receipt(receipt))


def _verify(card: Card, envelope: Envelope, direction: Direction) -> Vouched:
    binding = bind(envelope.header)
    _check_direction(binding, direction)
    if binding.sender != card.name:
        raise Tampered("header", f"a header of sender {binding.sender[:63]!r}; expected: {card.name!r}")
    vouched = Vouched(binding, envelope.digest, envelope.size)
    _check(card, envelope.signature, _say_parcel(vouched, envelope.wrap))
    return vouched


def _say_parcel(parcel: Sealed | Vouched, wrap: bytes) -> bytes:
    """The header's hash, the digest, the recipient's wrap, and how many bytes it is sealed and open."""
    sizes = b"".join(size.to_bytes(8, "big") for size in (parcel.size, plain_size(parcel.size)))
    label = _PARCEL_LABELS[parcel.binding.direction, parcel.binding.digests]
    return label + parcel.binding.hash + _digest_bytes(parcel.digest) + hashlib.sha256(wrap).digest() + sizes


def _say_receipt(receipt: Receipt) -> bytes:
    said = {"run": receipt.run, "key": receipt.key, "site": receipt.site, "digest": receipt.digest}
    return _RECEIPT_LABEL + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def _digest_bytes(digest: str) -> bytes:
    try:
        found = bytes.fromhex(digest)
    except ValueError:
        found = b""
    # Written back, for capitals and spaces would be other names for the same bytes.
    if len(found) != hashlib.sha256().digest_size or found.hex() != digest:
        raise Tampered("signature", "a digest that is none; expected: 64 hexadecimal digits")
    return found


def _check_direction(binding: Binding, direction: Direction) -> None:
    if binding.direction != direction:
        raise Tampered("header", f"a header of direction {binding.direction}; expected: {direction}")


def _check(card: Card, signature: bytes, message: bytes) -> None:
    try:
        card.verifier.verify(signature, message)
    except InvalidSignature:
        raise Tampered("signature", f"{card.name} did not sign this; expected: its signature") from None
