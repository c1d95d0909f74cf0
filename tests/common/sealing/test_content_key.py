"""The content key that its maker keeps for itself; wraps for others stand in `scenarios`."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.sealing import LOCK_BYTES, ContentKey, Tampered, lock, unlock

KEY, HEADER_HASH = bytes(range(32)), bytes(32)
KEYS = EnvelopeKeys(
    Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32),
    X25519PrivateKey.from_private_bytes(bytes([9]) * 32),
)
LOCKED = bytes.fromhex(
    "000102030405060708090a0b64ef7a761accc6f8750071c1a6ae0ebbe49999b40a4cbe941159dd4436c3be044eec05566150d45a"
    "847572c9ca6ef4fb"
)


def test_a_locked_key_is_frozen() -> None:
    """One that lies in an outbox opens after an update of the program."""
    assert LOCK_BYTES == len(LOCKED)
    assert KEY == unlock(LOCKED, KEYS, header_hash=HEADER_HASH)._raw


def test_a_key_is_locked_anew_each_time() -> None:
    """Under a nonce of its own: the same key twice gives other bytes, and both open."""
    first, second = (lock(ContentKey(KEY), KEYS, header_hash=HEADER_HASH) for _ in range(2))
    assert first[:12] != second[:12]
    for locked in (first, second):
        assert KEY == unlock(locked, KEYS, header_hash=HEADER_HASH)._raw


@pytest.mark.parametrize(
    ("locked", "keys", "header_hash"),
    [
        (LOCKED[:-1] + bytes([LOCKED[-1] ^ 1]), KEYS, HEADER_HASH),
        (LOCKED[:-1], KEYS, HEADER_HASH),
        (b"", KEYS, HEADER_HASH),
        (LOCKED, EnvelopeKeys.generate(), HEADER_HASH),
        (LOCKED, KEYS, bytes([1]) * 32),
    ],
    ids=["another tag", "cut", "nothing", "another's keys", "another header"],
)
def test_nothing_else_opens_it(locked: bytes, keys: EnvelopeKeys, header_hash: bytes) -> None:
    """Changed, cut, another party's or of another parcel."""
    with pytest.raises(Tampered):
        unlock(locked, keys, header_hash=header_hash)
