"""The content key of one parcel, and its wraps: sealed copies of it, each for one recipient alone (HPKE).

A key is never passed on but in wraps, and never shown. Who has shown a key for the hybrid envelope (ML-KEM-768 and
X25519 together: both have to be broken) gets its wraps in it; a wrap's length tells which of the two it is.

What a party keeps of a key for itself is locked with one of its own (AES-256-GCM): a thirtieth of a wrap's time.
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.sealing.frame_format import TAG, Tampered

KEY_BYTES = 32
WRAP_BYTES = 32 + KEY_BYTES + TAG
"""The sender's one-time public key, then the content key with its tag."""
HYBRID_WRAP_BYTES = 1120 + KEY_BYTES + TAG
"""The same, with what ML-KEM-768 sends before it."""
LOCK_BYTES = 12 + KEY_BYTES + TAG
"""A nonce, then the content key with its tag."""

_NONCE = 12
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_HYBRID_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_WRAP_LABEL, _HYBRID_LABEL, _LOCK_LABEL = b"pfl wrap 1\0", b"pfl wrap 2\0", b"pfl lock 1\0"


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


def lock(key: ContentKey, keys: EnvelopeKeys, *, header_hash: bytes) -> bytes:
    """The content key for who sealed the parcel itself: it is kept beside it, and nobody is sent it."""
    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(_derive_lock(keys)).encrypt(nonce, key._raw, header_hash)


def unlock(locked: bytes, keys: EnvelopeKeys, *, header_hash: bytes) -> ContentKey:
    """The content key that was locked with these keys, for this header."""
    if len(locked) != LOCK_BYTES:
        raise Tampered("wrap", f"a locked key of {len(locked)} bytes; expected: {LOCK_BYTES}")
    try:
        raw = AESGCM(_derive_lock(keys)).decrypt(locked[:_NONCE], locked[_NONCE:], header_hash)
    except InvalidTag:
        raise Tampered(
            "wrap", "a locked key does not open; expected: one of these keys and this header"
        ) from None
    return ContentKey(raw)


def _derive_lock(keys: EnvelopeKeys) -> bytes:
    derive = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=_LOCK_LABEL)
    return derive.derive(keys.receiving.private_bytes_raw())


def _say_wrap(label: bytes, header_hash: bytes, name: str) -> bytes:
    return label + header_hash + name.encode()
