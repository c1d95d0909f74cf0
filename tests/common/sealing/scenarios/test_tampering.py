"""Whatever is changed between sender and recipient, the parcel is refused with its reason and not used."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from pfl_common.errors import Refused
from pfl_common.sealing import (
    FRAME,
    TAG,
    Envelope,
    Tampered,
    Vouched,
    bind,
    open_to_bytes,
    seal_bytes,
    sealed_size,
    verify_down,
    verify_up,
)
from tests.common.sealing.parcels import (
    COORDINATOR,
    PLAIN,
    SEALED_FRAME,
    SITE,
    WAYS,
    Parcel,
    code_of,
    frames_of,
    same,
    send_down,
    write_header,
)


def receive(path: Path, envelope: Envelope, parcel: Parcel) -> bytes:
    """Read it as the recipient of the genuine parcel does."""
    return WAYS[parcel.sealed.binding.direction][1](path, envelope)


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ((0, 1), "truncated"),
        ((0, 2), "truncated"),
        ((), "truncated"),
        ((1, 0, 2), "order"),
        ((0, 0, 2), "order"),
        ((1, 1, 2), "order"),
        ((0, 1, 2, 2), "size"),
        ((0, 1, 1, 2), "size"),
        ((0, 1, 2, 0), "size"),
    ],
)
def test_frames_that_are_cut_swapped_or_doubled(
    parcel: Parcel, tmp_path: Path, order: tuple[int, ...], code: str
) -> None:
    """Truncation, reordering, duplication and appending are each seen for what they are."""
    found = frames_of(parcel)
    (tmp_path / "spoilt").write_bytes(b"".join(found[index] for index in order))
    assert code == code_of(tmp_path / "spoilt", parcel.envelope, parcel.sealed.binding.direction)


@pytest.mark.parametrize("cut", [1, TAG, 100 + TAG, FRAME])
def test_a_cut_inside_a_frame(parcel: Parcel, tmp_path: Path, cut: int) -> None:
    """A missing byte is enough."""
    (tmp_path / "spoilt").write_bytes(parcel.path.read_bytes()[:-cut])
    assert "truncated" == code_of(tmp_path / "spoilt", parcel.envelope, parcel.sealed.binding.direction)


@pytest.mark.parametrize("extra", [b"\0", bytes(TAG), bytes(SEALED_FRAME)])
def test_bytes_appended(parcel: Parcel, tmp_path: Path, extra: bytes) -> None:
    """A byte too many is enough."""
    (tmp_path / "spoilt").write_bytes(parcel.path.read_bytes() + extra)
    assert "size" == code_of(tmp_path / "spoilt", parcel.envelope, parcel.sealed.binding.direction)


def test_a_cut_with_a_size_that_fits(parcel: Parcel, tmp_path: Path) -> None:
    """Who cuts the bytes and the announced size alike meets the signature, and behind it the last flag."""
    way = parcel.sealed.binding.direction
    (tmp_path / "spoilt").write_bytes(b"".join(frames_of(parcel)[:2]))
    envelope = replace(parcel.envelope, size=2 * SEALED_FRAME)
    assert "signature" == code_of(tmp_path / "spoilt", envelope, way)
    vouched = Vouched(parcel.sealed.binding, parcel.sealed.digest, envelope.size)
    with pytest.raises(Tampered) as caught:
        open_to_bytes(tmp_path / "spoilt", key=parcel.sealed.content_key, vouched=vouched)
    assert "truncated" == caught.value.code


def test_a_last_frame_in_the_middle(parcel: Parcel, tmp_path: Path) -> None:
    """A parcel that claims to go on after its own end is refused for its size."""
    shorter = send_down(PLAIN[:FRAME], tmp_path / "short")
    (tmp_path / "spoilt").write_bytes(shorter.path.read_bytes() + bytes(TAG + 1))
    vouched = Vouched(shorter.sealed.binding, shorter.sealed.digest, SEALED_FRAME + TAG + 1)
    with pytest.raises(Tampered) as caught:
        open_to_bytes(tmp_path / "spoilt", key=shorter.sealed.content_key, vouched=vouched)
    assert "size" == caught.value.code


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_anywhere(
    parcel: Parcel, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """In the bytes, the header, the digest, the wrap or the signature: one bit, and all is refused."""
    part = data.draw(st.sampled_from(["bytes", "header", "digest", "wrap", "signature"]))
    sources = {
        "bytes": parcel.path.read_bytes,
        "digest": parcel.envelope.digest.encode,
    }
    spoilt = bytearray(sources[part]() if part in sources else getattr(parcel.envelope, part))
    edges = st.sampled_from([0, len(spoilt) * 8 - 1])
    bit = data.draw(st.one_of(edges, st.integers(0, len(spoilt) * 8 - 1)))
    spoilt[bit // 8] ^= 1 << bit % 8
    path, envelope = parcel.path, parcel.envelope
    if part == "bytes":
        path = tmp_path_factory.getbasetemp() / f"flipped-{parcel.sealed.binding.direction}"
        path.write_bytes(spoilt)
    elif part == "digest":
        envelope = replace(envelope, digest=spoilt.decode("latin-1"))
    else:
        envelope = replace(envelope, **{part: bytes(spoilt)})
    with pytest.raises(Tampered):
        receive(path, envelope, parcel)


@settings(max_examples=50, deadline=None)
@given(size=st.integers(-10, 1 << 40), junk=st.binary(max_size=200))
def test_junk_in_every_field(parcel: Parcel, size: int, junk: bytes) -> None:
    """Whatever a stranger writes, the end is a refusal and no other error."""
    words = junk.decode("latin-1")
    for changed in (
        replace(parcel.envelope, header=junk),
        replace(parcel.envelope, digest=words),
        replace(parcel.envelope, wrap=junk),
        replace(parcel.envelope, signature=junk),
        replace(parcel.envelope, size=size),
    ):
        if changed == parcel.envelope:
            continue
        with pytest.raises(Tampered):
            receive(parcel.path, changed, parcel)


def test_a_lie_about_the_size_takes_no_memory(tmp_path: Path) -> None:
    """Even signed, bytes that are not there are seen before room is made for them."""
    sent = send_down(PLAIN, tmp_path / "a")
    vouched = Vouched(sent.sealed.binding, sent.sealed.digest, sealed_size(1 << 50))
    with pytest.raises(Tampered) as caught:
        open_to_bytes(sent.path, key=sent.sealed.content_key, vouched=vouched)
    assert "truncated" == caught.value.code


def test_a_fellow_recipient_cannot_change_a_broadcast(tmp_path: Path) -> None:
    """Who knows the key can make other bytes with the very same tags; the signed SHA-256 sees it."""
    sent = send_down(PLAIN, tmp_path / "a")
    first, *others = frames_of(sent)
    forged = forge(first, sent.sealed.content_key._raw)
    (tmp_path / "forged").write_bytes(b"".join([forged, *others]))
    assert not same(first, forged)
    assert first[-TAG:] == forged[-TAG:]
    assert "signature" == code_of(tmp_path / "forged", sent.envelope, "down")
    # The forgery is a real one: every frame of it opens, and only the digest is wrong.
    digest = hashlib.sha256((tmp_path / "forged").read_bytes()).hexdigest()
    vouched = Vouched(sent.sealed.binding, digest, sent.sealed.size)
    assert not same(PLAIN, open_to_bytes(tmp_path / "forged", key=sent.sealed.content_key, vouched=vouched))


def forge(frame: bytes, key: bytes) -> bytes:
    """Change two neighbouring blocks of a frame so that its GCM tag stays: d, then d times the hash key."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # the hash key is AES(0)
    hash_key = int.from_bytes(encryptor.update(bytes(16)), "big")
    change = 1 << 77
    mask = change.to_bytes(16, "big") + multiply(change, hash_key).to_bytes(16, "big")
    changed = bytes(old ^ new for old, new in zip(frame, mask, strict=False))
    return changed + frame[len(mask) :]


def multiply(a: int, b: int) -> int:
    """The product of two blocks in GCM's field, whose bits run from the left."""
    product = 0
    for bit in range(127, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (0xE1 << 120 if b & 1 else 0)
    return product


def spoil(sent: Parcel, way: str) -> Iterator[tuple[Path, Envelope]]:
    """One parcel for each kind of refusal."""
    yield sent.path, replace(sent.envelope, signature=bytes(64))
    yield sent.path, replace(sent.envelope, header=b"{}")
    yield sent.path, replace(sent.envelope, size=sent.envelope.size + 1)
    spoilt = sent.path.with_name("spoilt")
    for content in (b"", bytes(sent.envelope.size), sent.path.read_bytes() + b"\0"):
        spoilt.write_bytes(content)
        yield spoilt, sent.envelope
    if way == "down":
        yield sent.path, replace(sent.envelope, wrap=bytes(80))


def test_refusals_say_nothing_secret(way: str, tmp_path: Path) -> None:
    """No key and no content in words or traceback, its local values included."""
    canary = b"PATIENT-0815"
    sent = WAYS[way][0](canary, tmp_path / "a")
    secrets_ = [sent.sealed.content_key._raw, canary]
    secrets_ += [party.keys.signing.private_bytes_raw() for party in (SITE, COORDINATOR)]
    secrets_ += [party.keys.receiving.private_bytes_raw() for party in (SITE, COORDINATOR)]
    for path, envelope in spoil(sent, way):
        with pytest.raises(Refused) as caught:
            WAYS[way][1](path, envelope)
        caught.value.__traceback__ = caught.value.__traceback__.tb_next  # this test's own values are left out
        told = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        text = "".join(told.format()) + repr(caught.value) + str(caught.value)
        for secret in secrets_:
            assert repr(secret)[2:-1] not in text
            assert secret.hex() not in text


def test_a_digest_has_one_text(parcel: Parcel) -> None:
    """The same bytes in capitals would be another name for one upload: refused before any byte is read."""
    spelt = replace(parcel.envelope, digest=parcel.envelope.digest.upper())
    up = parcel.sealed.binding.direction == "up"
    with pytest.raises(Tampered, match="64 hexadecimal digits"):
        verify_up(SITE.card, spelt) if up else verify_down(COORDINATOR.card, spelt)


def test_headers_have_one_text() -> None:
    """Spaces, another order, a field said twice or what is no JSON are refused: two texts, one meaning."""
    good = write_header("up")
    assert hashlib.sha256(good).digest() == bind(good).hash
    for bad in (
        b"",
        b"[]",
        b"\xff",
        good + b"\n",
        good.replace(b":", b": ", 1),
        good.replace(b"{", b'{"round":4,', 1),
        good.replace(b'"up"', b'"sideways"'),
        good.replace(b'"hospital_a"', b"7"),
        b"[" * 60000,
        write_header("up", run="x" * (1 << 16)),
    ):
        with pytest.raises(Tampered) as caught:
            bind(bad)
        assert "header" == caught.value.code


def test_nothing_is_sealed_under_a_bad_header(tmp_path: Path) -> None:
    """The error comes before the file."""
    with pytest.raises(Tampered):
        seal_bytes(PLAIN, tmp_path / "a", b"{}")
    assert [] == list(tmp_path.iterdir())
