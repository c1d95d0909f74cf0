"""Facts a signature covers, each changed by itself; the vectors of `scenarios` hold their bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.sealing.frame_format import Tampered, bind
from pfl_common.sealing.parcels import Vouched
from pfl_common.sealing.signatures import Envelope, sign_down, sign_up, verify_down, verify_up

KEYS = EnvelopeKeys.generate()
DIGEST = "ab" * 32


def card_of(name: str) -> Card:
    """The card of these keys in this name."""
    public = (KEYS.signing.public_key().public_bytes_raw(), KEYS.receiving.public_key().public_bytes_raw())
    return Card(name, *public, "f", datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))


def header_of(direction: str, sender: str, **more: str) -> bytes:
    """As far as sealing reads it."""
    said = {"direction": direction, "sender": sender, **more}
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def envelope_of(direction: str = "up", sender: str = "a") -> Envelope:
    """A parcel of a hundred bytes, signed."""
    header = header_of(direction, sender)
    sign = sign_up if direction == "up" else sign_down
    signature = sign(KEYS, Vouched(bind(header), DIGEST, 116), wrap=b"wrap")
    return Envelope(header, DIGEST, 116, b"wrap", signature)


@pytest.mark.parametrize(
    "changed",
    [
        {"header": header_of("up", "a", round="2")},
        {"digest": "cd" * 32},
        {"size": 117},
        {"wrap": b"another's"},
        {"signature": bytes(64)},
    ],
)
def test_a_fact_that_was_changed(changed: dict[str, object]) -> None:
    """Header, digest, size, the recipient's wrap: the signature is under all of them."""
    verify_up(card_of("a"), envelope_of())
    with pytest.raises(Tampered) as refused:
        verify_up(card_of("a"), replace(envelope_of(), **changed))
    assert "signature" == refused.value.code


def test_one_direction_is_not_taken_for_the_other() -> None:
    """Neither when it is verified nor when it is signed."""
    down, up = envelope_of("down", "coordinator"), envelope_of()
    verify_down(card_of("coordinator"), down)
    for verify, envelope in ((verify_up, down), (verify_down, up)):
        with pytest.raises(Tampered, match="of direction"):
            verify(card_of("coordinator"), envelope)
    with pytest.raises(Tampered, match="of direction up"):
        sign_down(KEYS, Vouched(bind(up.header), DIGEST, 116), wrap=b"")


def test_the_sender_of_the_header_is_the_name_on_the_card() -> None:
    """Even with the right keys under it."""
    with pytest.raises(Tampered, match="sender 'a'; expected: 'b'"):
        verify_up(card_of("b"), envelope_of())


@pytest.mark.parametrize("digest", ["AB" * 32, "ab " * 32, "ab" * 31, "zz" * 32, ""])
def test_a_digest_has_one_spelling(digest: str) -> None:
    """Capitals and blanks would be other names for the same bytes."""
    with pytest.raises(Tampered, match="a digest that is none"):
        verify_up(card_of("a"), replace(envelope_of(), digest=digest))


def test_a_size_that_sealing_never_gives() -> None:
    """It is refused before the signature is looked at."""
    with pytest.raises(Tampered) as refused:
        verify_up(card_of("a"), replace(envelope_of(), size=15))
    assert "size" == refused.value.code
