"""Files that are kept to be written over."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread

import pytest

from pfl_common.files.recycler import WORTH, Blanks


def write(path: Path, size: int) -> Path:
    path.write_bytes(b"x" * size)
    return path


def test_a_blank_is_laid_where_a_file_is_about_to_be_written(tmp_path: Path) -> None:
    """The very same file, so that its pages are warm; no longer than what is to come."""
    blanks, old = Blanks(tmp_path / "blanks", most=8 * WORTH), write(tmp_path / "old", 3 * WORTH)
    number = old.stat().st_ino
    assert blanks.give(old)
    assert not old.exists()
    assert blanks.lay(tmp_path / "new", 2 * WORTH)
    assert (number, 2 * WORTH) == ((tmp_path / "new").stat().st_ino, (tmp_path / "new").stat().st_size)
    assert not blanks.lay(tmp_path / "another", 2 * WORTH)


def test_what_is_small_or_too_much_is_not_kept(tmp_path: Path) -> None:
    """The caller removes it; and a small file is not begun as a blank."""
    blanks = Blanks(tmp_path / "blanks", most=3 * WORTH)
    small, first, second = (write(tmp_path / f"{size}", size) for size in (5, 2 * WORTH, WORTH + 1))
    assert [False, True, False] == [blanks.give(file) for file in (small, first, second)]
    assert small.exists()
    assert second.exists()
    assert not blanks.lay(tmp_path / "new", 5)


def test_what_somebody_reads_is_left_to_them(tmp_path: Path) -> None:
    """A file that is open anywhere is not taken in, to be written over under its reader's eyes."""
    blanks, file = Blanks(tmp_path / "blanks", most=3 * WORTH), write(tmp_path / "read", WORTH)
    with file.open("rb"):
        assert not blanks.give_unread(file)
    assert [True, False] == [blanks.give_unread(file), blanks.give_unread(write(tmp_path / "small", 5))]


def test_they_can_be_given_up(tmp_path: Path) -> None:
    """On a full disk; also when somebody else has removed them, a file is simply made anew."""
    blanks = Blanks(tmp_path / "blanks", most=8 * WORTH)
    assert blanks.give(write(tmp_path / "one", WORTH))
    assert (WORTH, 0) == (blanks.clear(), blanks.clear())
    assert not (tmp_path / "blanks").exists()
    assert not blanks.lay(tmp_path / "new", WORTH)
    assert blanks.give(write(tmp_path / "two", WORTH))
    next((tmp_path / "blanks").iterdir()).unlink()
    assert not blanks.lay(tmp_path / "new", WORTH)
    assert not (tmp_path / "new").exists()


def test_those_of_an_earlier_process_are_thrown_away(tmp_path: Path) -> None:
    """Nobody counts them any more."""
    assert Blanks(tmp_path / "blanks", most=8 * WORTH).give(write(tmp_path / "one", WORTH))
    Blanks(tmp_path / "blanks", most=8 * WORTH)
    assert not (tmp_path / "blanks").exists()


@pytest.mark.parametrize(
    ("wanted", "order"), [(2 * WORTH, (2, 3, 1)), (2 * WORTH + 1, (3, 2, 1)), (9 * WORTH, (3, 2, 1))]
)
def test_the_one_is_laid_that_fits_best(tmp_path: Path, wanted: int, order: tuple[int, ...]) -> None:
    """The shortest that is long enough, so that little is cut off; else the longest, so that little is added."""
    blanks = Blanks(tmp_path / "blanks", most=9 * WORTH)
    numbers = {}
    for size in (3, 1, 2):
        numbers[write(tmp_path / f"{size}", size * WORTH).stat().st_ino] = size
        assert blanks.give(tmp_path / f"{size}")
    laid = []
    for place in "abc":
        assert blanks.has_one_for(wanted)
        assert blanks.lay(tmp_path / place, wanted)
        laid.append(numbers[(tmp_path / place).stat().st_ino])
    assert order == tuple(laid)
    assert not blanks.has_one_for(wanted)


@pytest.mark.parametrize("step", ["mkdir", "replace"])
def test_a_full_disk_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """There is no room for one name more: the caller is told so, and removes the file itself."""
    blanks, old = Blanks(tmp_path / "blanks", most=8 * WORTH), write(tmp_path / "old", WORTH)
    monkeypatch.setattr(os, step, refuse)
    assert not blanks.give(old)
    assert (True, False) == (old.exists(), blanks.has_one_for(WORTH))
    assert not blanks.give(tmp_path / "gone")


def test_one_that_cannot_be_laid_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts it any more: its room goes back."""
    blanks = Blanks(tmp_path / "blanks", most=8 * WORTH)
    assert blanks.give(write(tmp_path / "old", WORTH))
    with monkeypatch.context() as full:
        full.setattr(os, "replace", refuse)
        assert not blanks.lay(tmp_path / "new", WORTH)
    assert [] == list((tmp_path / "blanks").iterdir())


def test_two_who_give_at_a_time_do_not_keep_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks how much is held before it adds to that."""
    blanks, both, move = Blanks(tmp_path / "blanks", most=WORTH), Barrier(2), os.replace
    taken: list[bool] = []

    def meet(source: Path, target: Path) -> None:
        with suppress(BrokenBarrierError):
            both.wait(timeout=0.2)
        move(source, target)

    monkeypatch.setattr(os, "replace", meet)
    files = [write(tmp_path / name, WORTH) for name in "ab"]
    givers = [Thread(target=lambda file=file: taken.append(blanks.give(file))) for file in files]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    assert [False, True] == sorted(taken)


def refuse(*words: object, **named: object) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")
