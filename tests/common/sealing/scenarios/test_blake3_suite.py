"""The second suite: downloads named and signed by BLAKE3. Frozen for good, as the first is in `test_vectors`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from unittest import mock

import pytest
from blake3 import blake3

from pfl_common.sealing import (
    Envelope,
    Tampered,
    bind,
    open_to_bytes,
    seal_bytes,
    sign_down,
    unwrap,
    verify_down,
)
from tests.common.sealing.parcels import code_of, receive_down, same, send_down
from tests.common.sealing.scenarios.test_vectors import DOWN, KEY, KEYS, PLAIN, WRAP, card

HEADER = DOWN.replace('"direction":"down"', '"digests":"blake3","direction":"down"').encode()
SEALED = "72c52e71582cd687d9b023e25bc2dddb54334c38e6b7de0b17"
DIGEST = "b45c65ffc299154600ae7c48bbcab4c67a1e022b3277116ca8d279bc5fce10c2"
WRAPPED = (
    "26c398846c9cc3cee5f3f7fcd0e254be446dac8136441524623adcd509b9312760912fc717348334602be7927209a41e"
    "cb63525479eaa307fa506ff4b9bb5e75cea7235e80aac98fa700d1749de738fc"
)
SIGNATURE = (
    "a1902dd43ae2b79d3f6b68162a6f3eb9cfa752bee0307ebeeeaac692e5d6c2b05117c5b1683953fc0282a17fa04783c9"
    "bd073408bf3add6fdd372477466e7a0f"
)


@pytest.fixture(autouse=True)
def fixed_key() -> None:
    """Sealing draws the same content key each time, which only a test may make it do."""
    with mock.patch("pfl_common.sealing.frame_cipher.secrets.token_bytes", lambda count: KEY[:count]):
        yield


def test_sealed_bytes_are_frozen(tmp_path: Path) -> None:
    """The frames are those of the first suite under another header; their digest is BLAKE3 of the sealed bytes."""
    sealed = seal_bytes(PLAIN, tmp_path / "a", HEADER)
    raw = (tmp_path / "a").read_bytes()
    assert (SEALED, DIGEST) == (raw.hex(), sealed.digest)
    assert DIGEST == blake3(raw).hexdigest()


def test_kept_parcels_still_open(tmp_path: Path) -> None:
    """A kept wrap, kept bytes, a kept digest and a kept signature give the content."""
    key = unwrap(bytes.fromhex(WRAPPED), KEYS, name="hospital_a", header_hash=bind(HEADER).hash)
    (tmp_path / "a").write_bytes(bytes.fromhex(SEALED))
    envelope = Envelope(HEADER, DIGEST, 25, WRAP, bytes.fromhex(SIGNATURE))
    vouched = verify_down(card("coordinator"), envelope)
    assert PLAIN == open_to_bytes(tmp_path / "a", key=key, vouched=vouched)


def test_signed_words_are_as_written_down(tmp_path: Path) -> None:
    """A label of its own, so that a digest of one suite never stands for one of the other."""
    sealed = seal_bytes(PLAIN, tmp_path / "a", HEADER)
    assert SIGNATURE == sign_down(KEYS, sealed, wrap=WRAP).hex()
    message = b"pfl parcel down 2\0" + bind(HEADER).hash + bytes.fromhex(DIGEST)
    message += hashlib.sha256(WRAP).digest() + (25).to_bytes(8, "big") + (9).to_bytes(8, "big")
    card("a").verifier.verify(bytes.fromhex(SIGNATURE), message)


def test_a_changed_byte_is_found_by_the_digest(tmp_path: Path) -> None:
    """Whoever knows the key can make other frames that open: what is signed is the hash of all bytes."""
    parcel = send_down(PLAIN, tmp_path / "a", digests="blake3")
    assert same(PLAIN, receive_down(parcel.path, parcel.envelope))
    other = seal_bytes(b"the Model", tmp_path / "b", parcel.envelope.header)
    assert other.digest != parcel.envelope.digest
    assert "signature" == code_of(tmp_path / "b", parcel.envelope, "down")


@pytest.mark.parametrize("word", ['"sha256"', '"blake2"', "7", "null"])
def test_another_word_is_refused(word: str) -> None:
    """A suite that this release does not know; and the first one is never named, or two texts would mean one."""
    with pytest.raises(Tampered, match="compare the versions"):
        bind(HEADER.replace(b'"blake3"', word.encode()))


def test_nothing_goes_up_in_it() -> None:
    """One recipient knows the key of an upload: its tags are signed, in either suite."""
    with pytest.raises(Tampered, match="going up with the digests 'blake3'"):
        bind(HEADER.replace(b'"down"', b'"up"'))


def test_the_words_cannot_be_taken_off(tmp_path: Path) -> None:
    """A parcel of this suite is none of the first one."""
    parcel = send_down(PLAIN, tmp_path / "a", digests="blake3")
    fields = json.loads(parcel.envelope.header)
    del fields["digests"]
    header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    changed = Envelope(
        header, *(getattr(parcel.envelope, name) for name in ("digest", "size", "wrap", "signature"))
    )
    assert "signature" == code_of(parcel.path, changed, "down")
