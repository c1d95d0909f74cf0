"""Who sealed it: signatures over a parcel, both ways, and over the coordinator's receipts.

Going up one recipient knows the key, and the hash of all frame tags stands for the bytes. Going down many
sites know it, and whoever knows a GCM key can make other bytes with the same tags: there the SHA-256 of the
sealed bytes themselves is signed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature

from pfl_common.identity.cards import COORDINATOR, Card, EnvelopeKeys
from pfl_common.messages import Receipt
from pfl_common.run import Direction
from pfl_common.sealing.frames import Sealed, Vouched
from pfl_common.sealing.layout import Binding, Tampered, bind, plain_size

_DOWN_LABEL = b"pfl parcel down 1\0"
_UP_LABEL = b"pfl parcel up 1\0"
_RECEIPT_LABEL = b"pfl receipt 1\0"


@dataclass(frozen=True)
class Envelope:
    """What travels beside the sealed bytes; `digest` is as in `Sealed`, `wrap` is the reader's own."""

    header: bytes
    digest: str
    size: int
    wrap: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def sign_down(keys: EnvelopeKeys, sealed: Sealed) -> bytes:
    """The coordinator's signature over a parcel it seals once for many sites."""
    _check_direction(sealed.binding, "down")
    return keys.signing.sign(_say_down(sealed.binding, sealed.digest))


def verify_down(card: Card, envelope: Envelope) -> Vouched:
    """Check that the party of this card signed this parcel; the bytes may be fetched before or after."""
    binding = _check_header(card, envelope, "down")
    _check(card, envelope.signature, _say_down(binding, envelope.digest))
    return Vouched(binding, envelope.digest, envelope.size)


def sign_up(keys: EnvelopeKeys, sealed: Sealed, *, wrap: bytes) -> bytes:
    """A site's signature over the parcel it seals for the coordinator, its wrap and its size included."""
    _check_direction(sealed.binding, "up")
    return keys.signing.sign(_say_up(sealed.binding, sealed.digest, wrap=wrap, size=sealed.size))


def verify_up(card: Card, envelope: Envelope) -> Vouched:
    """Check that the party of this card signed this parcel, before its first byte is taken."""
    binding = _check_header(card, envelope, "up")
    said = _say_up(binding, envelope.digest, wrap=envelope.wrap, size=envelope.size)
    _check(card, envelope.signature, said)
    return Vouched(binding, envelope.digest, envelope.size)


def sign_receipt(keys: EnvelopeKeys, receipt: Receipt) -> bytes:
    """The coordinator's signature under a receipt; the same receipt always gets the same one."""
    return keys.signing.sign(_say_receipt(receipt))


def verify_receipt(card: Card, receipt: Receipt, signature: bytes) -> None:
    """Refuse a receipt that is not the coordinator's; what it says of a signature itself is not part of it."""
    if card.name != COORDINATOR:
        raise Tampered("signature", f"a receipt signed by {card.name}; expected: by the {COORDINATOR}")
    _check(card, signature, _say_receipt(receipt))


def _say_down(binding: Binding, digest: str) -> bytes:
    return _DOWN_LABEL + binding.hash + _digest_bytes(digest)


def _say_up(binding: Binding, digest: str, *, wrap: bytes, size: int) -> bytes:
    sizes = size.to_bytes(8, "big") + plain_size(size).to_bytes(8, "big")
    return _UP_LABEL + binding.hash + _digest_bytes(digest) + hashlib.sha256(wrap).digest() + sizes


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


def _check_header(card: Card, envelope: Envelope, direction: Direction) -> Binding:
    binding = bind(envelope.header)
    _check_direction(binding, direction)
    if binding.sender != card.name:
        raise Tampered("header", f"a header of sender {binding.sender[:63]!r}; expected: {card.name!r}")
    plain_size(envelope.size)
    return binding


def _check_direction(binding: Binding, direction: Direction) -> None:
    if binding.direction != direction:
        raise Tampered("header", f"a header of direction {binding.direction}; expected: {direction}")


def _check(card: Card, signature: bytes, message: bytes) -> None:
    try:
        card.verifier.verify(signature, message)
    except InvalidSignature:
        raise Tampered("signature", f"{card.name} did not sign this; expected: its signature") from None
