"""Sealing and opening: every size comes back, memory stays flat, and no key meets a second parcel."""

from __future__ import annotations

import copy
import itertools
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from pfl_common.errors import StateError
from pfl_common.sealing import (
    FRAME,
    TAG,
    Sealed,
    Tampered,
    Vouched,
    bind,
    check_frames,
    check_whole,
    frame_cipher,
    open_held,
    open_to_bytes,
    open_to_file,
    plain_size,
    seal_bytes,
    seal_file,
    sealed_size,
)
from pfl_common.sealing.frame_cipher import Sealer
from tests.common.sealing.parcels import same, write_header

DIRECTIONS = ("up", "down")
SIZES = st.one_of(
    st.integers(0, 100),
    st.builds(lambda n, d: max(0, n * FRAME + d), st.integers(0, 3), st.integers(-TAG - 1, TAG + 1)),
)


def make_content(size: int) -> bytes:
    """Bytes that are not alike from frame to frame."""
    return (
        (b"%08d" % size + os.urandom(1 << 16)) * (size // (1 << 16) + 1) if size > 64 else bytes(range(size))
    )


def trust(sealed: Sealed) -> Vouched:
    """What a good signature would say of this parcel."""
    return Vouched(sealed.binding, sealed.digest, sealed.size)


@settings(max_examples=60, deadline=None)
@given(size=SIZES, direction=st.sampled_from(DIRECTIONS))
def test_every_size_comes_back(size: int, direction: str) -> None:
    """From bytes or file, to bytes, file or blocks: the same content, and the size that was foretold."""
    plain = make_content(size)[:size]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plain").write_bytes(plain)
        header = write_header(direction)
        made = [
            seal_bytes(plain, folder / "a", header),
            seal_file(folder / "plain", folder / "b", header),
        ]
        for sealed, path in zip(made, (folder / "a", folder / "b"), strict=True):
            known = {"key": sealed.content_key, "vouched": trust(sealed)}
            assert sealed_size(size) == sealed.size == path.stat().st_size
            assert size == plain_size(sealed.size)
            assert same(plain, open_to_bytes(path, **known))
            assert same(plain, open_held(path.read_bytes(), **known))
            assert same(plain, open_to_file(path, folder / "out", **known).read_bytes())
            assert sealed.size == check_frames(path, **known)
            check_whole(path, **known)
        assert {"plain", "a", "b", "out"} == {path.name for path in folder.iterdir()}


@given(size=st.integers(0, 1 << 45))
def test_sizes_have_one_meaning(size: int) -> None:
    """A sealed size gives back its plain one; its neighbours give another or none."""
    assert size == plain_size(sealed_size(size))
    for sealed in (sealed_size(size) - 1, sealed_size(size) + 1):
        try:
            assert sealed == sealed_size(plain_size(sealed))
        except Tampered as refusal:
            assert "size" == refusal.code


@pytest.mark.parametrize("sealed", [-1, 0, 15, FRAME + TAG + 1, FRAME + 2 * TAG, 1 << 60])
def test_a_size_no_sealing_gives_is_refused(sealed: int) -> None:
    """No frame is without a tag, none but a lone one is empty, and their number has an end."""
    with pytest.raises(Tampered) as caught:
        plain_size(sealed)
    assert "size" == caught.value.code


def test_sealed_files_are_private(tmp_path: Path) -> None:
    """Only this user reads what was opened, and what was sealed."""
    sealed = seal_bytes(b"model", tmp_path / "a", write_header("up"))
    open_to_file(tmp_path / "a", tmp_path / "b", key=sealed.content_key, vouched=trust(sealed))
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}


def test_a_given_buffer_is_used(tmp_path: Path) -> None:
    """A caller's larger buffer is filled from its start; the answer is the part that was filled."""
    sealed = seal_bytes(b"model", tmp_path / "a", write_header("up"))
    buffer = bytearray(b"-" * 9)
    found = open_to_bytes(tmp_path / "a", key=sealed.content_key, vouched=trust(sealed), into=buffer)
    assert (b"model", b"model----") == (found, buffer)
    with pytest.raises(TypeError):
        found[0] = 0


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """A parcel that is bad in its last frame leaves no file, no block, and a zeroed buffer."""
    plain = make_content(2 * FRAME + 5)[: 2 * FRAME + 5]
    sealed = seal_bytes(plain, tmp_path / "a", write_header("up"))
    spoilt = bytearray((tmp_path / "a").read_bytes())
    spoilt[-1] ^= 1
    (tmp_path / "a").write_bytes(spoilt)
    known = {"key": sealed.content_key, "vouched": trust(sealed)}
    buffer = bytearray(b"-" * len(plain))
    with pytest.raises(Tampered):
        open_to_bytes(tmp_path / "a", into=buffer, **known)
    with pytest.raises(Tampered):
        open_to_file(tmp_path / "a", tmp_path / "out", **known)
    for held in (bytes(spoilt), bytes(spoilt[:-1]), bytes(spoilt) + b"x"):
        with pytest.raises(Tampered):
            open_held(held, **known)
    assert same(bytes(len(plain)), buffer)
    assert ["a"] == [path.name for path in tmp_path.iterdir()]


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    """A parcel that cannot be sealed to its end does not replace the one before."""
    first = seal_bytes(b"model", tmp_path / "a", write_header("up"))
    with (
        mock.patch.object(Sealer, "seal", side_effect=OSError("disk full")),
        pytest.raises(OSError, match="disk full"),
    ):
        seal_bytes(b"other", tmp_path / "a", write_header("up"))
    assert b"model" == open_to_bytes(tmp_path / "a", key=first.content_key, vouched=trust(first))
    assert ["a"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_source_that_changes_is_an_error(tmp_path: Path, change: int) -> None:
    """Bytes that come or go during sealing would make a parcel of no one moment."""
    source = tmp_path / "plain"
    source.write_bytes(bytes(FRAME + 10))
    seal = Sealer.seal

    def meddle(self: Sealer, block: memoryview, into: memoryview, *, last: bool) -> memoryview:
        os.truncate(source, FRAME + 10 + change)
        return seal(self, block, into, last=last)

    with mock.patch.object(Sealer, "seal", meddle), pytest.raises(StateError, match="changed while"):
        seal_file(source, tmp_path / "a", write_header("up"))
    assert not (tmp_path / "a").exists()


def test_a_growing_file_is_checked_from_where_it_stood(tmp_path: Path) -> None:
    """Whole genuine frames count, half ones and spoilt ones do not; the rest is checked without the start."""
    plain = make_content(3 * FRAME + 7)[: 3 * FRAME + 7]
    sealed = seal_bytes(plain, tmp_path / "a", write_header("up"))
    known = {"key": sealed.content_key, "vouched": trust(sealed)}
    whole = (tmp_path / "a").read_bytes()
    two = 2 * (FRAME + TAG)
    for size, good in ((0, 0), (two, two), (two + 100, two), (sealed.size - 1, 3 * (FRAME + TAG))):
        (tmp_path / "b").write_bytes(whole[:size])
        assert good == check_frames(tmp_path / "b", **known)
    (tmp_path / "b").write_bytes(bytes(two) + whole[two:])  # the start is not looked at again
    assert sealed.size == check_frames(tmp_path / "b", start=two, **known)
    assert sealed.size == check_frames(tmp_path / "b", start=sealed.size, **known)
    assert 0 == check_frames(tmp_path / "b", **known)
    with pytest.raises(ValueError, match="end of a frame"):
        check_frames(tmp_path / "b", start=5, **known)


def test_no_key_and_nonce_meet_two_plaintexts(tmp_path: Path) -> None:
    """Recorded over many seals, failed ones and equal contents among them: no pair comes twice."""
    used: list[tuple[bytes, bytes]] = []

    class Recorder:
        def __init__(self, key: bytes) -> None:
            self.key, self.cipher = key, AESGCM(key)

        def encrypt_into(self, nonce: bytes, *rest: object) -> int:
            used.append((self.key, nonce))
            if len(used) % 7 == 0:
                raise OSError("spoilt")
            return self.cipher.encrypt_into(nonce, *rest)

    plain = bytes(2 * FRAME)
    with mock.patch.object(frame_cipher, "AESGCM", Recorder):
        for direction, size in itertools.product(DIRECTIONS, [0, 1, FRAME, FRAME + 1, 2 * FRAME] * 8):
            for repeat in range(2):
                try:
                    seal_bytes(plain[:size], tmp_path / f"{repeat}", write_header(direction))
                except OSError:
                    continue
    assert len(used) > 150
    assert len(set(used)) == len(used)
    assert {12} == {len(nonce) for _, nonce in used}


def test_a_sealer_seals_one_parcel() -> None:
    """After the last frame it seals no more, and a short frame is a last one: no nonce comes again."""
    buffer = memoryview(bytearray(FRAME + TAG))
    sealer = Sealer(bind(write_header("up")))
    with pytest.raises(ValueError, match="fewer in the last"):
        sealer.seal(b"short", buffer, last=False)
    sealer.seal(b"short", buffer, last=True)
    with pytest.raises(ValueError, match="ended: True"):
        sealer.seal(b"more", buffer, last=True)
    with pytest.raises(ValueError, match="expected"):
        Sealer(bind(write_header("up"))).seal(bytes(FRAME + 1), buffer, last=True)


def test_a_content_key_is_not_shown_and_not_copied(tmp_path: Path) -> None:
    """Neither it nor what holds it appears in a representation; copies and pickles are refused."""
    with mock.patch("secrets.token_bytes", lambda count: b"K" * count):
        sealed = seal_bytes(b"model", tmp_path / "a", write_header("up"))
    for shown in (repr(sealed), repr(sealed.content_key), str(sealed.content_key)):
        assert "KKKK" not in shown
        assert (b"K" * 32).hex() not in shown
    with pytest.raises(TypeError, match="does not leave"):
        copy.copy(sealed.content_key)


def test_speed_is_printed(tmp_path: Path) -> None:
    """45 MiB sealed and opened, each way; shown with `pytest -s`, judged by the benchmarks."""
    (tmp_path / "plain").write_bytes(bytes(45 << 20))
    buffer = bytearray(45 << 20)
    for direction in DIRECTIONS * 2:
        began = time.perf_counter()
        sealed = seal_file(tmp_path / "plain", tmp_path / "a", write_header(direction))
        between = time.perf_counter()
        open_to_bytes(tmp_path / "a", key=sealed.content_key, vouched=trust(sealed), into=buffer)
        ended = time.perf_counter()
        speeds = [(45 << 20) / 1e6 / seconds for seconds in (between - began, ended - between)]
        sys.stdout.write(f"45 MiB {direction}: sealed {speeds[0]:.0f}, opened {speeds[1]:.0f} MB/s\n")
    assert same(bytes(45 << 20), buffer)


CHILD = """
import sys
from pathlib import Path
from pfl_common.sealing import Vouched, open_to_file, seal_file

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

folder, header = Path(sys.argv[1]), sys.argv[2].encode()

def carry(plain):
    sealed = seal_file(plain, folder / "a", header)
    known = {"key": sealed.content_key, "vouched": Vouched(sealed.binding, sealed.digest, sealed.size)}
    return open_to_file(folder / "a", folder / "out", **known).stat().st_size

carry(folder / "small")
before = peak()
assert carry(folder / "large") == 64 << 20
sys.stdout.write(str(peak() - before))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_memory_is_flat(tmp_path: Path, direction: str) -> None:
    """64 MiB need no more memory than a few frames."""
    (tmp_path / "small").write_bytes(b"model")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 << 20)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), write_header(direction).decode()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 0 == child.returncode, child.stderr
    assert int(child.stdout) < 32 << 10, f"{child.stdout} kB more"
    assert same((tmp_path / "large").read_bytes(), (tmp_path / "out").read_bytes())


def test_sealing_loads_nothing_heavy() -> None:
    """The idle daemon of a small device pays for no tensors here, and the codec stays the trainer's."""
    code = "import sys, pfl_common.sealing; sys.stdout.write(' '.join(sys.modules))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set() == {"torch", "numpy", "grpc", "pfl_common.tensors.codec"} & set(child.stdout.split())


@pytest.mark.parametrize("size", [5, FRAME + 5])
def test_sealed_over_a_longer_file(tmp_path: Path, size: int) -> None:
    """Nothing of what was there before stays behind the new parcel's end, nor does a draft."""
    plain, out = os.urandom(size), tmp_path / "parcel"
    for number in range(2):
        out.write_bytes(b"o" * (3 * FRAME))
        if number:
            (tmp_path / "plain").write_bytes(plain)
            sealed = seal_file(tmp_path / "plain", out, write_header("up"), over=True)
            (tmp_path / "plain").unlink()
        else:
            sealed = seal_bytes(plain, out, write_header("up"), over=True)
        assert sealed_size(size) == sealed.size == out.stat().st_size
        assert [out] == list(tmp_path.iterdir())
        check_whole(out, key=sealed.content_key, vouched=trust(sealed))
