"""A parcel is of one run, round, sender and recipient: put in another's place it is refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from pfl_common.sealing import (
    Tampered,
    Vouched,
    bind,
    open_to_bytes,
    sign_down,
    sign_up,
    unwrap,
    verify_down,
    verify_up,
    wrap,
)
from tests.common.sealing.parcels import (
    COORDINATOR,
    OTHER,
    PLAIN,
    SITE,
    WAYS,
    Parcel,
    code_of,
    frames_of,
    same,
    send,
    send_down,
    send_up,
    write_header,
)

CHANGES = [
    {"run": "run-b"},
    {"round": 4},
    {"attempt": 2},
    {"kind": "finish"},
    {"phase": "calibrate"},
    {"manifest": "1" * 32},
    {"groups": ["head"]},
    {"state": "cd" * 16},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
class TestSplicing:
    """A parcel of one run, round, attempt, kind, phase, manifest, groups or state is nothing in another."""

    def test_under_another_header(self, parcel: Parcel, change: dict[str, object]) -> None:
        """The header is signed."""
        way = parcel.sealed.binding.direction
        envelope = replace(parcel.envelope, header=write_header(way, **change))
        assert "signature" == code_of(parcel.path, envelope, way)

    def test_its_bytes_in_another(self, parcel: Parcel, tmp_path: Path, change: dict[str, object]) -> None:
        """Bytes of one parcel beside the genuine envelope of another do not open."""
        way = parcel.sealed.binding.direction
        other = WAYS[way][0](PLAIN, tmp_path / "other", **change)
        assert "frame" == code_of(parcel.path, other.envelope, way)
        assert "frame" == code_of(other.path, parcel.envelope, way)

    def test_one_frame_in_another(self, parcel: Parcel, tmp_path: Path, change: dict[str, object]) -> None:
        """A single frame at its own place in another parcel does not open either."""
        way = parcel.sealed.binding.direction
        other = WAYS[way][0](PLAIN, tmp_path / "other", **change)
        mixed = [frames_of(other)[0], frames_of(parcel)[1], frames_of(other)[2]]
        (tmp_path / "mixed").write_bytes(b"".join(mixed))
        assert "frame" == code_of(tmp_path / "mixed", other.envelope, way)

    def test_its_wrap_in_another(self, parcel: Parcel, tmp_path: Path, change: dict[str, object]) -> None:
        """A wrap is signed with its header."""
        way = parcel.sealed.binding.direction
        other = WAYS[way][0](PLAIN, tmp_path / "other", **change)
        envelope = replace(other.envelope, wrap=parcel.envelope.wrap)
        assert "signature" == code_of(other.path, envelope, way)
        with pytest.raises(Tampered) as caught:
            keys = (COORDINATOR if way == "up" else SITE).keys
            name = (COORDINATOR if way == "up" else SITE).name
            unwrap(parcel.envelope.wrap, keys, name=name, header_hash=bind(other.envelope.header).hash)
        assert "wrap" == caught.value.code

    def test_by_one_who_knows_the_key(
        self, parcel: Parcel, tmp_path: Path, change: dict[str, object]
    ) -> None:
        """Even under its own key a frame is bound to the header it was sealed with."""
        way = parcel.sealed.binding.direction
        binding = bind(write_header(way, **change))
        vouched = Vouched(binding, parcel.sealed.digest, parcel.sealed.size)
        with pytest.raises(Tampered) as caught:
            open_to_bytes(parcel.path, key=parcel.sealed.content_key, vouched=vouched)
        assert "frame" == caught.value.code


def test_a_site_cannot_speak_for_another(tmp_path: Path) -> None:
    """With its own keys under the other's name its signature is wrong, and so is any other name."""
    forged = send(
        PLAIN, tmp_path / "a", write_header("up", sender=SITE.name), sender=OTHER, recipient=COORDINATOR
    )
    assert "signature" == code_of(forged.path, forged.envelope, "up")
    honest = send(
        PLAIN, tmp_path / "b", write_header("up", sender=OTHER.name), sender=OTHER, recipient=COORDINATOR
    )
    assert "header" == code_of(honest.path, honest.envelope, "up")
    renamed = replace(honest.envelope, header=write_header("up"))
    assert "signature" == code_of(honest.path, renamed, "up")


def test_a_site_cannot_take_anothers_update(tmp_path: Path) -> None:
    """Another site's bytes and wrap, signed anew under one's own header, do not unwrap."""
    stolen = send_up(PLAIN, tmp_path / "a")
    header = write_header("up", sender=OTHER.name)
    claimed = replace(stolen.sealed, binding=bind(header))
    signature = sign_up(OTHER.keys, claimed, wrap=stolen.envelope.wrap)
    envelope = replace(stolen.envelope, header=header, signature=signature)
    vouched = verify_up(OTHER.card, envelope)
    with pytest.raises(Tampered) as caught:
        unwrap(envelope.wrap, COORDINATOR.keys, name=COORDINATOR.name, header_hash=vouched.binding.hash)
    assert "wrap" == caught.value.code


def test_a_parcel_cannot_be_sent_back(tmp_path: Path) -> None:
    """What came down is no upload, and what went up no download, whatever is said."""
    down, up = send_down(PLAIN, tmp_path / "a"), send_up(PLAIN, tmp_path / "b")
    with pytest.raises(Tampered) as caught:
        verify_up(COORDINATOR.card, down.envelope)
    assert "header" == caught.value.code
    with pytest.raises(Tampered) as caught:
        verify_down(SITE.card, up.envelope)
    assert "header" == caught.value.code
    with pytest.raises(Tampered):
        sign_up(SITE.keys, down.sealed, wrap=down.envelope.wrap)
    with pytest.raises(Tampered):
        sign_down(COORDINATOR.keys, up.sealed, wrap=up.envelope.wrap)


def test_a_frame_cannot_change_direction(tmp_path: Path) -> None:
    """Even with key and header's hash equal, the nonce tells down from up."""
    down = send_down(PLAIN, tmp_path / "a")
    turned = replace(down.sealed.binding, direction="up")
    with pytest.raises(Tampered) as caught:
        open_to_bytes(
            down.path,
            key=down.sealed.content_key,
            vouched=Vouched(turned, down.sealed.tags_hash.hex(), down.sealed.size),
        )
    assert "frame" == caught.value.code


def test_the_wrong_recipient(parcel: Parcel) -> None:
    """Another's keys do not open a wrap, nor do the right ones under another name."""
    hash_, way = parcel.sealed.binding.hash, parcel.sealed.binding.direction
    right = COORDINATOR if way == "up" else SITE
    for keys, name in ((OTHER.keys, right.name), (right.keys, OTHER.name), (OTHER.keys, OTHER.name)):
        with pytest.raises(Tampered) as caught:
            unwrap(parcel.envelope.wrap, keys, name=name, header_hash=hash_)
        assert "wrap" == caught.value.code


def test_each_recipient_has_a_wrap_of_its_own(tmp_path: Path) -> None:
    """A broadcast sealed once opens for both sites, each by its own wrap and not by the other's."""
    sent = send_down(PLAIN, tmp_path / "a")
    wraps = {
        party: wrap(sent.sealed.content_key, party.card, header_hash=sent.sealed.binding.hash)
        for party in (SITE, OTHER)
    }
    for party, wrapped in wraps.items():
        signature = sign_down(COORDINATOR.keys, sent.sealed, wrap=wrapped)
        vouched = verify_down(COORDINATOR.card, replace(sent.envelope, wrap=wrapped, signature=signature))
        key = unwrap(wrapped, party.keys, name=party.name, header_hash=vouched.binding.hash)
        assert same(PLAIN, open_to_bytes(sent.path, key=key, vouched=vouched))
    with pytest.raises(Tampered):
        unwrap(wraps[SITE], OTHER.keys, name=OTHER.name, header_hash=sent.sealed.binding.hash)


def test_a_wrap_of_another_key(tmp_path: Path) -> None:
    """A wrap made by a stranger, which anyone can do, is not signed, and its key opens nothing."""
    sent, other = send_down(PLAIN, tmp_path / "a"), send_down(PLAIN, tmp_path / "b")
    forged = wrap(other.sealed.content_key, SITE.card, header_hash=sent.sealed.binding.hash)
    assert "signature" == code_of(sent.path, replace(sent.envelope, wrap=forged), "down")
    signature = sign_down(COORDINATOR.keys, sent.sealed, wrap=forged)
    assert "frame" == code_of(sent.path, replace(sent.envelope, wrap=forged, signature=signature), "down")


def test_a_site_cannot_hand_on_what_was_sealed_for_it(tmp_path: Path) -> None:
    """It knows its parcel's key and can wrap it for another that expects the very same header: not signed."""
    own = send_down(PLAIN, tmp_path / "a")
    bound = own.sealed.binding.hash
    key = unwrap(own.envelope.wrap, SITE.keys, name=SITE.name, header_hash=bound)
    handed_on = replace(own.envelope, wrap=wrap(key, OTHER.card, header_hash=bound))
    opened = unwrap(handed_on.wrap, OTHER.keys, name=OTHER.name, header_hash=bound)
    known = {"key": opened, "vouched": Vouched(own.sealed.binding, own.sealed.digest, own.sealed.size)}
    assert same(PLAIN, open_to_bytes(own.path, **known)), "only the signature stands between"
    with pytest.raises(Tampered) as caught:
        verify_down(COORDINATOR.card, handed_on)
    assert "signature" == caught.value.code


@pytest.mark.parametrize("wrapped", [b"", bytes(80), bytes(79), bytes(81), b"\xff" * 80])
def test_a_wrap_that_is_none(wrapped: bytes) -> None:
    """Junk, a point of low order among it, is refused like any other wrap."""
    with pytest.raises(Tampered) as caught:
        unwrap(wrapped, SITE.keys, name=SITE.name, header_hash=bytes(32))
    assert "wrap" == caught.value.code


def test_a_wrap_of_half_a_key() -> None:
    """A genuine wrap of 16 bytes would turn AES-256 into AES-128."""
    info = b"pfl wrap 1\0" + bytes(32) + SITE.name.encode()
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    for size in (16, 24, 31, 33):
        with pytest.raises(Tampered) as caught:
            wrapped = suite.encrypt(bytes(size), SITE.card.recipient, info)
            unwrap(wrapped, SITE.keys, name=SITE.name, header_hash=bytes(32))
        assert "wrap" == caught.value.code
    whole = suite.encrypt(bytes(32), SITE.card.recipient, info)
    unwrap(whole, SITE.keys, name=SITE.name, header_hash=bytes(32))


def test_a_key_nothing_can_be_sealed_for(tmp_path: Path) -> None:
    """A card with a point of low order stops neither program; the site's own wrap is refused."""
    sent = send_down(PLAIN, tmp_path / "a")
    with pytest.raises(Tampered) as caught:
        wrap(sent.sealed.content_key, replace(SITE.card, receiving=bytes(32)), header_hash=bytes(32))
    assert "wrap" == caught.value.code


def test_a_replay_is_the_same_and_nothing_new(way: str, tmp_path: Path) -> None:
    """A parcel sent again is itself, under its own header; as the answer of a later round it is refused."""
    send_it, receive_it = WAYS[way]
    old = send_it(PLAIN, tmp_path / "a")
    assert same(PLAIN, receive_it(old.path, old.envelope))
    assert same(PLAIN, receive_it(old.path, old.envelope))
    expected = bind(write_header(way, round=4))
    verify = {"up": (verify_up, SITE), "down": (verify_down, COORDINATOR)}[way]
    assert expected != verify[0](verify[1].card, old.envelope).binding
    assert "signature" == code_of(old.path, replace(old.envelope, header=write_header(way, round=4)), way)


def test_two_stories_under_one_header_are_told_apart(tmp_path: Path) -> None:
    """A coordinator that tells two sites different things signs two digests, and the two prove it."""
    first, second = send_down(PLAIN, tmp_path / "a"), send_down(PLAIN[::-1], tmp_path / "b")
    said = [verify_down(COORDINATOR.card, sent.envelope) for sent in (first, second)]
    assert said[0].binding == said[1].binding
    assert said[0].digest != said[1].digest
    for sent in (first, second):
        assert sent.envelope.digest == hashlib.sha256(sent.path.read_bytes()).hexdigest()
    assert "signature" == code_of(second.path, replace(first.envelope, digest=second.envelope.digest), "down")
    assert "frame" == code_of(second.path, first.envelope, "down")


def test_the_same_content_twice_is_not_recognised(tmp_path: Path) -> None:
    """Sealing draws a new key each time: equal updates look different, and are two updates."""
    first, second = send_up(PLAIN, tmp_path / "a"), send_up(PLAIN, tmp_path / "b")
    assert first.envelope.digest != second.envelope.digest
    assert first.path.read_bytes()[:64] != second.path.read_bytes()[:64]
