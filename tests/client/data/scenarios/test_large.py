"""Large pictures: upright, in the run's size, and never more than one of them decoded at a time."""

from __future__ import annotations

import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfl_client import data
from pfl_client.data import image_decoding
from pfl_client.data.image_decoding import Target
from pfl_client.trainer_process.api import DataFolder
from tests.client.data.test_images import draw, folder, spec

MEBIBYTE = 1 << 20


def photograph(path: Path, size: tuple[int, int], *, orientation: int = 1, form: str = "JPEG") -> Path:
    """A picture whose stored left half is dark and whose right half is light, held as EXIF says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.zeros((size[1], size[0], 3), np.uint8)
    values[:, size[0] // 2 :] = 200
    exif = Image.Exif()
    exif[image_decoding.ORIENTATION] = orientation
    Image.fromarray(values).save(path, form, exif=exif)
    return path


@pytest.mark.parametrize(
    ("orientation", "light"),
    [
        (1, "right"),
        (2, "left"),
        (3, "left"),
        (4, "right"),
        (5, "bottom"),
        (6, "bottom"),
        (7, "top"),
        (8, "top"),
    ],
)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_picture_stands_as_its_camera_was_held(
    tmp_path: Path, orientation: int, light: str, form: str
) -> None:
    """Its size when only looked at, and its pixels when read: all eight ways of holding a camera."""
    photograph(tmp_path / "train" / "cat" / "1", (48, 24), orientation=orientation, form=form)
    upright = (3, 24, 48) if orientation < 5 else (3, 48, 24)
    assert upright == data.describe(folder(tmp_path)).shape
    (picture,) = data.load(folder(tmp_path), spec(upright)).train.x.float()
    halves = {
        "left": picture[:, :, : upright[2] // 2],
        "right": picture[:, :, upright[2] // 2 :],
        "top": picture[:, : upright[1] // 2],
        "bottom": picture[:, upright[1] // 2 :],
    }
    assert light == max(halves, key=lambda half: float(halves[half].mean()))


def test_the_sizes_are_counted(tmp_path: Path) -> None:
    """The most common first, the smaller of equally common ones, at most 16 of them."""
    for n in range(20):
        draw(tmp_path / "train" / "cat" / f"{n:02}.png", size=(50 - n, 40))
    for n in range(2):
        draw(tmp_path / "train" / "dog" / f"{n}.png", size=(64, 64))
    seen = data.describe(folder(tmp_path))
    assert 16 == len(seen.sizes)
    assert ((64, 64, 2), (40, 31, 1), (40, 32, 1)) == seen.sizes[:3]


def test_one_decoded_picture_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept has the run's size: memory does not grow with the size of the files."""
    site = DataFolder(tmp_path, "site-3")
    for n in range(6):
        photograph(tmp_path / "train" / "ab"[n % 2] / f"{n}.jpg", (1600, 1200))
        photograph(tmp_path / "train" / "ab"[n % 2] / f"{n}.png", (1600, 1200), form="PNG")
    open_now, most = set[int](), [0]
    load, run = Image.Image.load, spec((3, 42, 56), ("a", "b"))

    def loading(image: Image.Image) -> object:
        found = load(image)
        if image.width * image.height > 42 * 56 * 4:
            weakref.finalize(image, open_now.discard, id(image))
            open_now.add(id(image))
            most[0] = max(most[0], len(open_now))
        return found

    monkeypatch.setattr(Image.Image, "load", loading)
    tracemalloc.start()
    try:
        data.describe(site)
        read = data.load(site, run)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 12 * 3 * 42 * 56 == read.train.x.nbytes
    assert most[0] <= 1
    assert peak < 12 * MEBIBYTE


def test_a_jpeg_is_decoded_smaller_and_always_alike(tmp_path: Path) -> None:
    """The same file gives the same bytes; no farther from the slow way than a rounding of colours."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 255, (15, 20, 3), dtype=np.uint8)).resize((1600, 1200))
    file = tmp_path / "1.jpg"
    coarse.save(file, quality=95)
    quick = image_decoding.read(file, Target((3, 60, 80)))
    assert quick.equal(image_decoding.read(file, Target((3, 60, 80))))
    slow = image_decoding.fit(Image.open(file).convert("RGB"), (3, 60, 80))
    assert float((quick.float() - slow.float()).abs().mean()) < 1


def test_a_jpeg_of_the_runs_size_is_decoded_as_it_is(tmp_path: Path) -> None:
    """Nothing is left out of a picture that is not made smaller."""
    file = photograph(tmp_path / "1.jpg", (56, 42))
    whole = np.asarray(Image.open(file).convert("RGB"))
    assert whole.tolist() == image_decoding.read(file, Target((3, 42, 56))).permute(1, 2, 0).tolist()
