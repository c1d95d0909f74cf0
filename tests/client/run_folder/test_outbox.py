"""The outbox: the same bytes again, or nothing."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from pfl_client.run_folder.outbox import Outbox, Upload
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.files import atomic
from pfl_common.files.recycler import WORTH, Blanks
from pfl_common.spec.run import Header, Kind
from pfl_deploy.simulation.loopback import OpenEnvelopes

KEY = "000003-1-train"
HEADER = Header("run-1", 3, 1, Kind.TRAIN, "train", "up", "hospital-a", "m", ("slot",))


def store(outbox: Outbox, content: bytes = b"sealed", key: str = KEY) -> Upload:
    """Put an upload in, as the daemon does."""
    return outbox.store(key, HEADER, content)


def open_outbox(folder: Path) -> Outbox:
    """As the daemon does when it starts."""
    return Outbox(folder, OpenEnvelopes())


def test_an_upload_is_found_again(tmp_path: Path) -> None:
    """After a restart the same bytes, header and digest are offered."""
    stored = store(open_outbox(tmp_path / "outbox"))
    found = open_outbox(tmp_path / "outbox").entry(KEY)
    assert stored == found
    assert (b"sealed", HEADER) == (found.parcel.read_bytes(), found.offer.header)
    assert (hashlib.sha256(b"sealed").hexdigest(), 6) == (found.offer.blob.digest, found.offer.blob.size)


def test_an_upload_is_written_over_one_that_was_dropped(tmp_path: Path) -> None:
    """The very same file, whose pages are warm, and nothing of what it held."""
    outbox = Outbox(tmp_path / "outbox", OpenEnvelopes(), Blanks(tmp_path / "blanks", most=1 << 30))
    long, short = b"l" * (WORTH + 9), b"s" * WORTH
    number = store(outbox, long).parcel.stat().st_ino
    outbox.drop(KEY)
    assert () == outbox.keys()
    stored = store(outbox, short)
    assert (number, short) == (stored.parcel.stat().st_ino, stored.parcel.read_bytes())
    assert stored == outbox.entry(KEY)


@pytest.mark.parametrize("content", [b"sealee", b"seal", b""])
def test_a_torn_upload_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    """After a power loss bytes may be missing or wrong; they are never handed in."""
    store(open_outbox(tmp_path)).parcel.write_bytes(content)
    assert open_outbox(tmp_path).entry(KEY) is None


def test_a_large_update_comes_as_a_file(tmp_path: Path) -> None:
    """What the trainer wrote is taken in."""
    (tmp_path / "update.raw").write_bytes(b"large")
    outbox = open_outbox(tmp_path / "outbox")
    outbox.store(KEY, HEADER, tmp_path / "update.raw")
    assert b"large" == outbox.entry(KEY).parcel.read_bytes()


@pytest.mark.parametrize("kind", ["json", "parcel"])
def test_half_an_upload_counts_as_absent(tmp_path: Path, kind: str) -> None:
    """Words without bytes, or bytes without words, are no upload."""
    outbox = open_outbox(tmp_path)
    store(outbox)
    (tmp_path / f"{KEY}.{kind}").unlink()
    assert open_outbox(tmp_path).entry(KEY) is None
    assert (kind == "parcel") == (outbox.entry(KEY) is None), "who wrote the words knows them"


def test_torn_words_count_as_absent(tmp_path: Path) -> None:
    """A header cut short is no header."""
    outbox = open_outbox(tmp_path)
    store(outbox)
    path = tmp_path / f"{KEY}.json"
    path.write_bytes(path.read_bytes()[:-3])
    assert open_outbox(tmp_path).entry(KEY) is None


def test_an_upload_under_another_key_counts_as_absent(tmp_path: Path) -> None:
    """What was made for one task is not handed in for another."""
    outbox = open_outbox(tmp_path)
    store(outbox)
    for kind in ("json", "parcel"):
        (tmp_path / f"{KEY}.{kind}").rename(tmp_path / f"000004-1-train.{kind}")
    assert open_outbox(tmp_path).entry("000004-1-train") is None
    assert outbox.entry("000004-1-train") is None


def test_a_second_making_takes_the_place_of_the_first(tmp_path: Path) -> None:
    """A task that was done again hands in its new bytes."""
    outbox = open_outbox(tmp_path)
    store(outbox)
    store(outbox, b"sealed anew")
    assert b"sealed anew" == outbox.entry(KEY).parcel.read_bytes()


def test_uploads_are_dropped_and_swept(tmp_path: Path) -> None:
    """When a round is committed nothing of its upload stays; at start only what is in force stays."""
    outbox = open_outbox(tmp_path)
    for number in (3, 4, 5):
        store(outbox, key=f"00000{number}-1-train")
    outbox.drop(KEY)
    assert outbox.entry(KEY) is None
    outbox.drop(KEY)
    outbox.sweep(["000004-1-train", "000005-1-train"])
    assert 4 == len(list(tmp_path.iterdir()))
    (tmp_path / "000009-1-train.sealed").write_bytes(b"half")
    again = open_outbox(tmp_path)
    again.sweep(["000005-1-train"])
    assert ("000005-1-train",) == again.keys()
    assert 2 == len(list(tmp_path.iterdir()))


def test_nothing_stays_of_an_upload_that_could_not_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written of it goes with the next sweep, also in the life that had no room for it."""
    outbox, full = open_outbox(tmp_path), OSError(errno.ENOSPC, "no space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write_over", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(DiskFull):
            store(outbox)
    assert (KEY,) == outbox.keys()
    outbox.sweep(())
    assert ((), []) == (outbox.keys(), list(tmp_path.iterdir()))


@pytest.mark.parametrize("key", ["../escape", "a/b", "", "A"])
def test_a_key_is_no_path(tmp_path: Path, key: str) -> None:
    """A key never leads out of the folder."""
    with pytest.raises(ValueError, match="no task key"):
        open_outbox(tmp_path).entry(key)


def test_a_full_disk_is_no_reason_to_keep_an_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be kept to be written over is removed: a site must be able to begin with a full disk."""
    outbox = Outbox(tmp_path / "outbox", OpenEnvelopes(), Blanks(tmp_path / "blanks", most=1 << 30))
    store(outbox, b"l" * WORTH)

    def refuse(*words: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "mkdir", refuse)
    outbox.sweep(())
    assert ((), []) == (outbox.keys(), list((tmp_path / "outbox").iterdir()))
