"""Pictures of 16 bits: grey levels survive, equal raw values are equal everywhere, what stretches a range is found."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import Description, RunSpec
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import draw, spec

SIDE = 64


def scan(path: Path, values: np.ndarray) -> Path:
    """A scanner's picture of 16 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint16)).save(path)
    return path


def ramp(low: int, high: int) -> np.ndarray:
    """All values from low to high, spread over a picture."""
    return np.linspace(low, high, SIDE * SIDE).round().reshape(SIDE, SIDE)


def site(folder: Path, *pictures: np.ndarray, suffix: str = "png") -> DataFolder:
    """A site whose training pictures are these, one class each."""
    for n, picture in enumerate(pictures):
        scan(folder / "train" / f"c{n % 2}" / f"{n}.{suffix}", picture)
    return DataFolder(folder, folder.name)


def agreed(*folders: DataFolder, **wish: str) -> RunSpec:
    """The run that these sites agree on."""
    model = agree({one.site: data.describe(one) for one in folders}, Wish(**wish))
    return replace(spec(), model=model)


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_twelve_bits_in_sixteen_keep_their_grey_levels(tmp_path: Path, suffix: str) -> None:
    """X-rays with values to 4095 were 16 grey levels once."""
    folders = [
        site(tmp_path / "a", ramp(0, 4095), ramp(0, 4000), suffix=suffix),
        site(tmp_path / "b", ramp(0, 3900), ramp(5, 4095), suffix=suffix),
    ]
    run = agreed(*folders)
    assert ("wide", 0.0, 4095.0) == (run.model.values, run.model.low, run.model.high)
    for folder in folders:
        for picture in data.load(folder, run).train.x:
            assert len(picture.unique()) >= 200


def test_equal_raw_values_are_equal_bytes_at_all_sites(tmp_path: Path) -> None:
    """One site never has values above 900: the same tissue is the same grey all the same."""
    low, high = ramp(0, 900), ramp(0, 4095)
    low[0, 0] = high[0, 0] = 700
    folders = [site(tmp_path / "a", low, low), site(tmp_path / "b", high, high)]
    run = agreed(*folders)
    first, second = (data.load(folder, run).train.x[0, 0, 0, 0].item() for folder in folders)
    assert round(700 / 4095 * 255) == first == second


def test_values_beyond_the_range_are_black_or_white(tmp_path: Path) -> None:
    """The test part may hold what training never saw; the range is learned from training alone."""
    folder = site(tmp_path / "a", ramp(100, 1000), ramp(100, 900))
    scan(folder.path / "test" / "c0" / "t.png", np.array([[0, 100], [1000, 65535]]))
    assert (100.0, 1000.0) == ((seen := data.describe(folder)).low, seen.high)
    run = agreed(folder)
    run = replace(run, model=replace(run.model, shape=(1, 2, 2)))
    assert [0, 0, 255, 255] == data.load(folder, run).test.x.flatten().tolist()


def test_each_picture_by_its_own_range_only_when_asked(tmp_path: Path) -> None:
    """Then brightness says nothing any more; a picture of one colour is black."""
    flat = np.full((SIDE, SIDE), 300)
    folder = site(tmp_path / "a", ramp(0, 900), ramp(0, 4095), flat)
    dim, bright, black = (data.load(folder, agreed(folder)).train.x[n].max().item() for n in (0, 2, 1))
    assert (dim, bright) != (255, 255)
    own = data.load(folder, agreed(folder, pixel_range="per-picture")).train.x
    assert sorted([255, 255, 0]) == sorted(int(picture.max()) for picture in own)
    assert black != 0


def test_a_named_range_wins(tmp_path: Path) -> None:
    """The operator knows the scanners."""
    folder = site(tmp_path / "a", np.full((SIDE, SIDE), 2000), ramp(0, 4095))
    read = data.load(folder, agreed(folder, pixel_range="0..4000"))
    assert 128 == int(read.train.x[0, 0, 0, 0])


def test_pictures_that_open_as_32_bits(tmp_path: Path) -> None:
    """Some decoders give 16 bits as 32: taken as long as the values are of 16; beyond that the file is left out."""
    folder = site(tmp_path / "a", ramp(0, 4095))
    for name, top in (("fits", 4000), ("beyond", 70000)):
        Image.fromarray(ramp(0, top).astype(np.int32)).save(folder.path / "train" / "c0" / f"{name}.tiff")
    seen = data.describe(folder)
    assert ("wide", 4095.0, 2) == (seen.values, seen.high, seen.samples)
    assert any("1 of 3 files" in words for words in seen.warnings)
    assert 2 == len(data.load(folder, agreed(folder)).train) if len(seen.classes) > 1 else True


def mixed(folder: Path) -> DataFolder:
    """Two pictures of 16 bits and one of 8."""
    found = site(folder, ramp(0, 4095), ramp(0, 4095))
    draw(folder / "train" / "c0" / "eight.png", size=(SIDE, SIDE), colour=77)
    return found


def test_eight_bits_among_sixteen_stay_as_they_are(tmp_path: Path) -> None:
    """Each kind by its own full scale, which is said."""
    folder = mixed(tmp_path / "a")
    assert any(re.search("2 pictures .*16 bits.* 1 .*8", words) for words in data.describe(folder).warnings)
    read = data.load(folder, agreed(folder))
    assert 77 in read.train.x.flatten(1).float().mean(1).tolist()


def test_sixteen_bits_in_a_run_on_eight_are_refused(tmp_path: Path) -> None:
    """The run has no range for them: nothing is guessed."""
    with pytest.raises(DataError, match=r"16 bits.* 8"):
        data.load(site(tmp_path / "a", ramp(0, 4095)), spec(classes=("c0", "c1")))


def test_what_stretches_the_range_is_found(tmp_path: Path) -> None:
    """One bright dot costs all others their grey levels: the warning says where, and what would help."""
    bright = ramp(0, 900)
    bright[3, 3] = 65535
    folder = site(tmp_path / "a", ramp(0, 900), ramp(0, 900), bright, ramp(0, 900))
    (words,) = [words for words in data.describe(folder).warnings if "grey levels" in words]
    assert "file 2 of train/c0" in words
    assert "--pixel-range 0..9" in words
    assert "2.png" not in words


def test_a_dark_dot_stretches_too(tmp_path: Path) -> None:
    """From the other end."""
    dark = ramp(60000, 60900)
    dark[3, 3] = 0
    folder = site(tmp_path / "a", ramp(60000, 60900), dark)
    assert any("file 1 of train/c1" in words for words in data.describe(folder).warnings)


def test_a_full_range_is_no_reason_to_warn(tmp_path: Path) -> None:
    """Evenly used values lose nothing."""
    assert not any("grey" in words for words in data.describe(site(tmp_path / "a", ramp(0, 65535))).warnings)


def test_deep_colours_are_said_to_be_cut(tmp_path: Path) -> None:
    """A colour PNG of 16 bits comes out of its decoder with 8."""
    draw(tmp_path / "train" / "c0" / "1.png", colour=(1, 2, 3))
    folder = tmp_path / "train" / "c1"
    folder.mkdir()
    (folder / "2.png").write_bytes(deep_png())
    seen = data.describe(DataFolder(tmp_path, "a"))
    assert any("1 pictures" in words and "16 bits" in words for words in seen.warnings)


def deep_png() -> bytes:
    """A PNG of one pixel with 16 bits a colour, written by hand: no library at hand writes one."""
    import struct
    import zlib

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00" + b"\x12\x34" * 3)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_arrays_of_16_bits_are_pictures_too(tmp_path: Path) -> None:
    """The same range, the same bytes as the same values in files."""
    files = site(tmp_path / "files", ramp(0, 4095), ramp(0, 4095))
    (tmp_path / "arrays").mkdir()
    x = np.stack([ramp(0, 2000)] * 2).astype(np.uint16)
    np.savez(tmp_path / "arrays" / "train.npz", x=x, y=np.array([0, 1]))
    (tmp_path / "arrays" / "classes.json").write_text('["c0", "c1"]')
    arrays = DataFolder(tmp_path / "arrays", "arrays")
    said: Description = data.describe(arrays)
    assert ("image", "wide", 2000.0, (1, SIDE, SIDE)) == (said.kind, said.values, said.high, said.shape)
    run = agreed(files, arrays)
    read = data.load(arrays, run).train.x
    assert [0, round(2000 / 4095 * 255)] == [int(read.min()), int(read.max())]
