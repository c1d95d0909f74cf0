"""The content key of one parcel, and its wraps: sealed copies of it, each for one recipient alone (HPKE).

A key is never passed on but in wraps, and never shown. Who has shown a key for the hybrid envelope (ML-KEM-768 and
X25519 together: both have to be broken) gets its wraps in it; a wrap's length tells which of the two it is.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.sealing.frame_format import TAG, Tampered

KEY_BYTES = 32
WRAP_BYTES = 32 + KEY_BYTES + TAG
"""The sender's one-time public key, then the content key with its tag."""
HYBRID_WRAP_BYTES = 1120 + KEY_BYTES + TAG
"""The same, with what ML-KEM-768 sends before it."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_HYBRID_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_WRAP_LABEL, _HYBRID_LABEL = b"pfl wrap 1\0", b"pfl wrap 2\0"


class ContentKey:
    """The key of one sealed parcel: it opens frames and can be wrapped, but is never shown."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return "ContentKey(...)"  # a representation can end in a log

    def __reduce__(self) -> str:
        raise TypeError("a content key does not leave its process; expected: a wrap of it")


def wrap(key: ContentKey, card: Card, *, header_hash: bytes) -> bytes:
    """The content key for one recipient, who alone can unwrap it, and only for this header."""
    try:
        if (hybrid := card.hybrid) is not None:
            return _HYBRID_SUITE.encrypt(key._raw, hybrid, _say_wrap(_HYBRID_LABEL, header_hash, card.name))
        return _SUITE.encrypt(key._raw, card.recipient, _say_wrap(_WRAP_LABEL, header_hash, card.name))
    except ValueError:
        raise Tampered(
            "wrap", f"the card of {card.name} has a key nothing can be sealed for; expected: a random one"
        ) from None


def unwrap(wrapped: bytes, keys: EnvelopeKeys, *, name: str, header_hash: bytes) -> ContentKey:
    """The content key from a wrap made for `name`, who holds these keys, and for this header."""
    try:
        if len(wrapped) == HYBRID_WRAP_BYTES and (hybrid := keys.hybrid) is not None:
            raw = _HYBRID_SUITE.decrypt(wrapped, hybrid, _say_wrap(_HYBRID_LABEL, header_hash, name))
        else:
            raw = _SUITE.decrypt(wrapped, keys.receiving, _say_wrap(_WRAP_LABEL, header_hash, name))
    except (InvalidTag, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise Tampered(
            "wrap",
            f"a wrap of {len(wrapped)} bytes does not open; expected: {WRAP_BYTES} bytes ({HYBRID_WRAP_BYTES} of the "
            f"hybrid envelope) made for {name} and this header",
        )
    return ContentKey(raw)


def _say_wrap(label: bytes, header_hash: bytes, name: str) -> bytes:
    return label + header_hash + name.encode()
