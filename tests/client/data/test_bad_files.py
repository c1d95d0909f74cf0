"""Files that cannot be read: a share that the site allows is left out, more of them are an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client import data
from pfl_client.data.bad_files import check_share, name_places
from pfl_client.data.findings import BadFile
from pfl_common.errors import DataError
from tests.client.data.test_images import draw, folder, spec


def spoil(path: Path, *, count: int = 20, bad: int = 3) -> Path:
    """A folder of pictures, some of which are cut behind their first bytes."""
    for number in range(count):
        draw(path / "train" / ("cat", "dog")[number % 2] / f"{number:02}.bmp", size=(20, 20), colour=number)
    for number in range(bad):
        file = path / "train" / "cat" / f"{2 * number:02}.bmp"
        file.write_bytes(file.read_bytes()[:1200])
    return path


def bad_file(number: int) -> BadFile:
    """One of them."""
    return BadFile(f"file {number} of cat", Path("/d/cat/smith.png"), "it is damaged")


@pytest.mark.parametrize(
    ("share", "total", "allowed"),
    [(0.1, 20, 2), (0.1, 30, 3), (0.1, 19, 2), (0.1, 3, 1), (0, 9, 0), (1, 5, 5)],
)
def test_the_share_is_rounded_up(share: float, total: int, allowed: int) -> None:
    """Of a few files one may be bad; with 0 none."""
    place = folder(Path("/d"), most_bad=share)
    check_share([bad_file(n) for n in range(allowed)], total, place)
    if allowed < total:
        with pytest.raises(DataError, match=f"{allowed + 1} of {total} files of site-3"):
            check_share([bad_file(n) for n in range(allowed + 1)], total, place)


def test_beyond_the_share_positions_are_named(tmp_path: Path) -> None:
    """When they are read, as first bytes do not show it; names are for the terminal."""
    spoil(tmp_path)
    assert 20 == data.describe(folder(tmp_path)).samples
    assert 17 == len(data.load(folder(tmp_path, most_bad=0.15), spec()).train)
    with pytest.raises(DataError, match="3 of 20 files") as error:
        data.load(folder(tmp_path), spec())
    for number in (1, 2, 3):
        assert f"file {number} of train/cat (it is damaged or cut short)" in error.value.seen
    assert "at most 2, by --most-bad 0.1" == error.value.expected
    assert "00.bmp" not in str(error.value)
    assert error.value.file.endswith("00.bmp")


def test_beyond_the_share_the_doctor_says_all_the_rest(tmp_path: Path) -> None:
    """Its owner wants to know what else there is."""
    found = data.look_through(spoil(tmp_path))
    assert isinstance(found.error, DataError)
    assert found.description is not None
    assert (17, 3) == (found.counts["train"].total(), len(found.unreadable))


def test_a_few_places_are_named() -> None:
    """The others are counted."""
    assert "file 0 of cat; file 1 of cat" == name_places([bad_file(n) for n in range(2)])
    assert name_places([bad_file(n) for n in range(9)]).endswith("file 4 of cat; ...")
