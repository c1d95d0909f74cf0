"""Files on their way: how far they are, written anew or over an old one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pfl_client.connection.partial_file import Arriving, forget, lay, reached
from pfl_common.files.recycler import WORTH, Blanks
from pfl_common.spec.digests import DIGESTS, Digests, digest_of
from pfl_common.spec.messages import Blob

CONTENT = bytes(range(256)) * (3 * WORTH // 256) + b"end"
BLOB = Blob(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.fixture(params=["new", "over an old one"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the file will be; with an old one of about its size there."""
    blanks = Blanks(tmp_path / "blanks", most=16 * WORTH)
    if request.param != "new":
        (tmp_path / "old").write_bytes(b"o" * (4 * WORTH))
        assert blanks.give(tmp_path / "old")
    lay(blanks, tmp_path / "file", BLOB.size)
    return tmp_path / "file"


def bring(arriving: Arriving, upto: int) -> None:
    with arriving.opened() as take:
        while arriving.at < upto:
            take(CONTENT[arriving.at : min(arriving.at + WORTH, upto)])


def test_it_says_how_far_it_is(file: Path) -> None:
    """Also to another process, after a kill; the length of an old file says nothing."""
    assert 0 == reached(file)
    bring(Arriving(file, BLOB), 2 * WORTH)
    assert 2 * WORTH == reached(file)
    again = Arriving(file, BLOB)
    assert 2 * WORTH == again.at
    assert not again.whole


def test_it_goes_on_where_it_stood(file: Path) -> None:
    """The bytes are those that were announced, and then the length alone says that all is there."""
    bring(Arriving(file, BLOB), WORTH + 7)
    again = Arriving(file, BLOB)
    bring(again, BLOB.size)
    assert again.whole
    again.settle()
    assert CONTENT == file.read_bytes()
    assert BLOB.size == reached(file)
    assert Arriving(file, BLOB).whole


@pytest.mark.parametrize("by", DIGESTS)
def test_the_hash_is_that_of_the_run(tmp_path: Path, by: Digests) -> None:
    """The other one's digest is none."""
    blob = Blob(digest_of(CONTENT, by), len(CONTENT))
    for hashed in DIGESTS:
        arriving = Arriving(tmp_path / hashed, blob, hashed)
        bring(arriving, BLOB.size)
        assert (hashed == by) == arriving.whole


def test_what_is_thrown_away_begins_again(file: Path) -> None:
    """Neither bytes nor note stay."""
    arriving = Arriving(file, BLOB)
    bring(arriving, WORTH)
    arriving.throw_away()
    assert [] == [path.name for path in file.parent.iterdir() if path.is_file()]
    assert (0, 0) == (reached(file), Arriving(file, BLOB).at)
    forget(file)
    forget(file)


def test_a_note_without_its_file_means_nothing(tmp_path: Path) -> None:
    """Killed between the two: the file is begun anew."""
    (tmp_path / "file.came").write_bytes((5).to_bytes(8, "little"))
    assert (0, 0) == (reached(tmp_path / "file"), Arriving(tmp_path / "file", BLOB).at)


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    """What has come of it would be lost."""
    blanks = Blanks(tmp_path / "blanks", most=16 * WORTH)
    (tmp_path / "old").write_bytes(b"o" * (4 * WORTH))
    assert blanks.give(tmp_path / "old")
    (tmp_path / "file").write_bytes(CONTENT[:WORTH])
    lay(blanks, tmp_path / "file", BLOB.size)
    assert WORTH == reached(tmp_path / "file")


@pytest.mark.parametrize("size", [WORTH - 1, 4 * WORTH])
def test_nothing_is_written_where_nothing_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A small file, or no old one: no note is made and removed again in each task."""
    monkeypatch.setattr(Path, "write_bytes", lambda *words: pytest.fail("a note"))
    lay(Blanks(tmp_path / "blanks", most=16 * WORTH), tmp_path / "file", size)
    assert [] == list(tmp_path.iterdir())


def test_killed_as_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after the old file got its new name: that is no file of which all has come."""
    blanks, whole = Blanks(tmp_path / "blanks", most=16 * WORTH), Blanks.lay
    (tmp_path / "old").write_bytes(b"o" * (4 * WORTH))
    assert blanks.give(tmp_path / "old")

    def lay_and_die(self: Blanks, into: Path, size: int) -> bool:
        whole(self, into, size)
        raise KeyboardInterrupt

    monkeypatch.setattr(Blanks, "lay", lay_and_die)
    with pytest.raises(KeyboardInterrupt):
        lay(blanks, tmp_path / "file", BLOB.size)
    assert (tmp_path / "file").exists()
    assert 0 == reached(tmp_path / "file")
