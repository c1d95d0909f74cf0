"""Encrypts and decrypts the frames of one parcel under its content key, each under a nonce of its own.

    nonce (12 bytes) = direction and format version (7) ‖ frame number (4) ‖ last frame? (1)

The last flag makes a cut file fail, the number a reordered one, the direction a reflected one.

No function takes a key to seal with: each `Sealer` makes its own from the operating system's randomness and
counts its frames itself, so that no key and nonce can meet two plaintexts.
"""

from __future__ import annotations

import secrets
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pfl_common.sealing.content_key import KEY_BYTES, ContentKey
from pfl_common.sealing.frame_format import FRAME, TAG, Binding
from pfl_common.spec.run import Direction

Buffer: TypeAlias = bytes | bytearray | memoryview

_PREFIXES: dict[Direction, bytes] = {"down": b"pfl1\0dn", "up": b"pfl1\0up"}


def make_nonce(direction: Direction, index: int, *, last: bool) -> bytes:
    """The nonce of one frame; under one key no two are alike."""
    return _PREFIXES[direction] + index.to_bytes(4, "big") + bytes((last,))


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
