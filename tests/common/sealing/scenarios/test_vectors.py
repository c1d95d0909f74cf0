"""Bytes frozen for good: a change here means that old and new releases cannot read each other."""

from __future__ import annotations

import hashlib
from pathlib import Path
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.sealing import (
    FRAME,
    Envelope,
    Tampered,
    bind,
    open_to_bytes,
    seal_bytes,
    sign_down,
    sign_receipt,
    sign_up,
    unwrap,
    verify_down,
    verify_receipt,
    verify_up,
)
from pfl_common.spec.messages import Receipt
from tests.common.sealing.parcels import COORDINATOR, END, SITE, START, same

KEY = bytes(range(32))
KEYS = EnvelopeKeys(
    Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32),
    X25519PrivateKey.from_private_bytes(bytes([9]) * 32),
)
HEADER = (
    '{"attempt":1,"direction":"%s","groups":[],"kind":"train","manifest":"00112233445566778899aabbccddeeff",'
    '"phase":"train","round":3,"run":"run-a","sender":"%s","state":"ffeeddccbbaa99887766554433221100"}'
)
UP, DOWN = (HEADER % words for words in (("up", "hospital_a"), ("down", "coordinator")))
HEADERS = {"up": UP.encode(), "down": DOWN.encode()}
SENDERS = {"up": "hospital_a", "down": "coordinator"}
PLAIN = b"the model"
SEALED = {
    "up": "7267b8937e9ac67246592dab1b11e8829548ab1e672fc40404",
    "down": "72c52e71582cd687d9315183469688ef62eb9621a008d393e9",
}
EMPTY = {"up": "4ad78a0b255f0daf5bd9c033eb23ff51", "down": "f0580104b73236067f2c193de7beb480"}
DIGEST = {
    "up": "bf4004ddd965b8c41d533545c62be70c4f3c47629be1fffeca7c8fa42e0c7d6a",
    "down": "613cd3de5a75e2276a53d5cb79354feb49d6f0a3d01cc255b9e505e845dfd9f8",
}
WRAPS = {
    "up": "031f3ee0f09f723dd8e3f2bcbf69cccd67e098e8ffdb4bceaba03c92492c9f370aa868a4cd6156c403f6dc34c3599d55"
    "b58ef07cffab0632165d61c348b92e1b5fe4b5c09b90e6be33b49f356a2fb9e8",
    "down": "b9ef38a66b09602d5205ea9c845e86fbe4a8c2f05b3b9ac989db611dc1821804fd1559a7a7f9eb7ea77f935e13aafa32"
    "a2c5a456699391e321f51e7190110217b912d3dd78bdfb968eebf8a60a55d836",
}
SIGNATURES = {
    "up": "9f8912ed08f328bbff050e08b6e8994c3f34f97aaa81534c6172ec5cd0c75b4076d1ef349957ac853cf2f213144dc05c"
    "0668a329d47393823bed9a24a4f28d0f",
    "down": "c49c6617f09b102d19df6f1db72402cba38d1be8908f490ff3792e36532d304990cde1078a8cc5f07e6569e87fecce56"
    "97b9681d3aacddb1bf687203b8602b01",
}
WRAP = b"w" * 80
RECEIPT = Receipt("run-a", "000003-1-train", "hospital_a", "ab" * 32)
RECEIPT_SIGNATURE = (
    "2df8d5127aa2f4a19f784a3b8e585136dd675a04a349e8a09e192e70fcb4d73faf6da212b9bfd2365090268db78da75d"
    "a24cc01a996514c677d716e4d8c4d701"
)


def card(name: str) -> Card:
    """The card of the fixed keys under any name."""
    return Card(name, *KEYS.public(), "f" * 16, START, END)


@pytest.fixture(params=["up", "down"])
def way(request: pytest.FixtureRequest) -> str:
    """Either direction."""
    return request.param


@pytest.fixture(autouse=True)
def fixed_key() -> None:
    """Sealing draws the same content key each time, which only a test may make it do."""
    with mock.patch("pfl_common.sealing.frame_cipher.secrets.token_bytes", lambda count: KEY[:count]):
        yield


def test_sealed_bytes_are_frozen(way: str, tmp_path: Path) -> None:
    """One key, one header: always these bytes and this digest."""
    sealed = seal_bytes(PLAIN, tmp_path / "a", HEADERS[way])
    seal_bytes(b"", tmp_path / "b", HEADERS[way])
    assert SEALED[way] == (tmp_path / "a").read_bytes().hex()
    assert EMPTY[way] == (tmp_path / "b").read_bytes().hex()
    assert DIGEST[way] == sealed.digest


def test_frames_follow_the_stated_layout(way: str, tmp_path: Path) -> None:
    """Each frame is plain AES-256-GCM with the nonce and the associated data that are written down."""
    plain = bytes(2 * FRAME) + b"end"
    seal_bytes(plain, tmp_path / "a", HEADERS[way])
    prefix = {"up": b"pfl1\0up", "down": b"pfl1\0dn"}[way]
    expected = b"".join(
        AESGCM(KEY).encrypt(
            prefix + index.to_bytes(4, "big") + bytes([index == 2]),
            plain[index * FRAME : (index + 1) * FRAME],
            hashlib.sha256(HEADERS[way]).digest(),
        )
        for index in range(3)
    )
    assert same(expected, (tmp_path / "a").read_bytes())


def test_old_parcels_still_open(way: str, tmp_path: Path) -> None:
    """A kept wrap, kept bytes and a kept digest give the content."""
    header_hash = bind(HEADERS[way]).hash
    key = unwrap(bytes.fromhex(WRAPS[way]), KEYS, name="hospital_a", header_hash=header_hash)
    (tmp_path / "a").write_bytes(bytes.fromhex(SEALED[way]))
    envelope = Envelope(HEADERS[way], DIGEST[way], 25, WRAP, bytes.fromhex(SIGNATURES[way]))
    verify = verify_up if way == "up" else verify_down
    vouched = verify(card(SENDERS[way]), envelope)
    assert PLAIN == open_to_bytes(tmp_path / "a", key=key, vouched=vouched)


def test_signatures_are_frozen(way: str, tmp_path: Path) -> None:
    """Ed25519 draws nothing: the same parcel and key, the same signature."""
    sealed = seal_bytes(PLAIN, tmp_path / "a", HEADERS[way])
    sign = sign_up if way == "up" else sign_down
    assert SIGNATURES[way] == sign(KEYS, sealed, wrap=WRAP).hex()


def test_signed_words_are_as_written_down(way: str) -> None:
    """Label, header hash, digest, the wrap's hash, and both sizes."""
    message = b"pfl parcel %s 1\0" % way.encode() + bind(HEADERS[way]).hash + bytes.fromhex(DIGEST[way])
    message += hashlib.sha256(WRAP).digest() + (25).to_bytes(8, "big") + (9).to_bytes(8, "big")
    card("a").verifier.verify(bytes.fromhex(SIGNATURES[way]), message)


def test_receipts_are_frozen() -> None:
    """The same receipt has the same signature: a repeated offer gets the same answer."""
    assert RECEIPT_SIGNATURE == sign_receipt(KEYS, RECEIPT).hex()
    verify_receipt(card("coordinator"), RECEIPT, bytes.fromhex(RECEIPT_SIGNATURE))


@pytest.mark.parametrize("field", ["run", "key", "site", "digest"])
def test_a_receipt_stands_for_one_upload(field: str) -> None:
    """Another run, key, site or digest needs another signature."""
    signature = sign_receipt(COORDINATOR.keys, RECEIPT)
    verify_receipt(COORDINATOR.card, RECEIPT, signature)
    changed = Receipt(**{**vars(RECEIPT), field: "other"})
    with pytest.raises(Tampered) as caught:
        verify_receipt(COORDINATOR.card, changed, signature)
    assert "signature" == caught.value.code


def test_only_the_coordinator_gives_receipts() -> None:
    """A site's good signature under a receipt is no receipt."""
    with pytest.raises(Tampered, match="expected: by the coordinator"):
        verify_receipt(SITE.card, RECEIPT, sign_receipt(SITE.keys, RECEIPT))
