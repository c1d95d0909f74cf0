"""Encrypts and decrypts the frames of one parcel under its content key, which is made here and passed on only in wraps.

No function takes a key to seal with: each `Sealer` makes its own from the operating system's randomness and
counts its frames itself, so that no key and nonce can meet two plaintexts.
"""

from __future__ import annotations

import secrets
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.sealing.frame_format import FRAME, TAG, Binding, Tampered, make_nonce

Buffer: TypeAlias = bytes | bytearray | memoryview

KEY_BYTES = 32
WRAP_BYTES = 32 + KEY_BYTES + TAG
"""The sender's one-time public key, then the content key with its tag."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_WRAP_LABEL = b"pfl wrap 1\0"


class ContentKey:
    """The key of one sealed parcel: it opens frames and can be wrapped, but is never shown."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return "ContentKey(...)"  # a representation can end in a log

    def __reduce__(self) -> str:
        raise TypeError("a content key does not leave its process; expected: a wrap of it")


class Sealer:
    """Seals the frames of one parcel, in order and once, under a fresh key."""

    def __init__(self, binding: Binding) -> None:
        self.key = ContentKey(secrets.token_bytes(KEY_BYTES))
        self._cipher = AESGCM(self.key._raw)
        self._binding = binding
        self._index = 0
        self._ended = False

    def seal(self, block: Buffer, into: memoryview, *, last: bool) -> memoryview:
        """Seal the next frame; the answer is the part of `into` that holds it."""
        if self._ended or len(block) > FRAME or (len(block) < FRAME and not last):
            raise ValueError(
                f"a block of {len(block)} bytes, ended: {self._ended}; expected: {FRAME}, fewer in the last"
            )
        nonce = make_nonce(self._binding.direction, self._index, last=last)
        # Before the work: should it fail, the nonce is spent.
        self._index, self._ended = self._index + 1, last
        frame = into[: len(block) + TAG]
        self._cipher.encrypt_into(nonce, block, self._binding.hash, frame)
        return frame


class Opener:
    """Opens single frames of one parcel; its caller checks their order and number."""

    def __init__(self, key: ContentKey, header_hash: bytes) -> None:
        self._cipher = AESGCM(key._raw)
        self._header_hash = header_hash

    def opens(self, frame: Buffer, into: memoryview, *, nonce: bytes) -> bool:
        """Whether the frame is genuine at this place; if so, its content is in `into`, otherwise zeros are."""
        content = into[: len(frame) - TAG]
        try:
            self._cipher.decrypt_into(nonce, frame, self._header_hash, content)
        except InvalidTag:
            # GCM decrypts before it knows: what a stranger chose shall not lie where content is expected.
            content[:] = bytes(len(content))
            return False
        return True


def wrap(key: ContentKey, card: Card, *, header_hash: bytes) -> bytes:
    """The content key for one recipient, who alone can unwrap it, and only for this header."""
    try:
        return _SUITE.encrypt(key._raw, card.recipient, _say_wrap(header_hash, card.name))
    except ValueError:
        raise Tampered(
            "wrap", f"the card of {card.name} has a key nothing can be sealed for; expected: a random one"
        ) from None


def unwrap(wrapped: bytes, keys: EnvelopeKeys, *, name: str, header_hash: bytes) -> ContentKey:
    """The content key from a wrap made for `name`, who holds these keys, and for this header."""
    try:
        raw = _SUITE.decrypt(wrapped, keys.receiving, _say_wrap(header_hash, name))
    except (InvalidTag, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise Tampered(
            "wrap",
            f"a wrap of {len(wrapped)} bytes does not open; expected: {WRAP_BYTES} bytes made for {name} "
            "and this header",
        )
    return ContentKey(raw)


def _say_wrap(header_hash: bytes, name: str) -> bytes:
    return _WRAP_LABEL + header_hash + name.encode()
