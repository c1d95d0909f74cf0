"""Files that are kept to be written over."""

from pathlib import Path

from pfl_common.blanks import WORTH, Blanks


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


def test_they_can_be_given_up(tmp_path: Path) -> None:
    """On a full disk; also when somebody else has removed them, a file is simply made anew."""
    blanks = Blanks(tmp_path / "blanks", most=8 * WORTH)
    assert blanks.give(write(tmp_path / "one", WORTH))
    blanks.clear()
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
