"""Picture files of each format become the same bytes; what is only partly read is known beforehand."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfl_client import data
from pfl_client.data import image_decoding
from pfl_client.data.image_decoding import Target
from pfl_client.data.scaling import Scale
from tests.client.data.drawn import halves, write_dicom, write_pages
from tests.client.data.test_images import folder, spec


@pytest.mark.parametrize("form", ["png", "tif", "webp", "jpg", "gif", "bmp", "dcm"])
@pytest.mark.parametrize("channels", [1, 3])
def test_each_format_gives_the_same(tmp_path: Path, form: str, channels: int) -> None:
    """Dark on the left, light on the right, in grey and in colour, by its content and not its name."""
    pixels = halves(20, 220, side=16).astype(np.uint8)
    if channels == 3:
        pixels = np.stack([pixels] * 3, axis=-1)
    file = tmp_path / "no-suffix"
    if form == "dcm":
        write_dicom(file, pixels)
    else:
        Image.fromarray(pixels).save(file, {"jpg": "JPEG", "tif": "TIFF"}.get(form, form), quality=100)
    # GIF has colours in a table, WebP has no grey.
    assert (
        3 if form in ("gif", "webp") and image_decoding.look(file).shape[0] == 3 else channels,
        16,
        16,
    ) == (image_decoding.look(file).shape)
    read = image_decoding.read(file, Target((channels, 4, 4))).float()
    assert (channels, 4, 4) == tuple(read.shape)
    assert (read[:, :, [0, 3]] - read.new_tensor([20, 220])).abs().max() <= 4


@pytest.mark.parametrize("form", ["tif", "gif", "webp"])
def test_of_several_pages_the_first_is_read(tmp_path: Path, form: str) -> None:
    """And the site is told, by a file's place."""
    first, second = np.full((8, 8, 3), 30, np.uint8), np.full((8, 8, 3), 200, np.uint8)
    for label in ("cat", "dog"):
        write_pages(tmp_path / "train" / label / f"1.{form}", first, second)
        (tmp_path / "train" / label / f"0.{form}").write_bytes(
            write_pages(tmp_path / f"one.{form}", second).read_bytes()
        )
    warnings = data.describe(folder(tmp_path)).warnings
    (words,) = [words for words in warnings if "more than one picture" in words]
    assert words.startswith("2 files ")
    assert words.endswith("file 2 of train/cat")
    read = data.load(folder(tmp_path), spec(shape=(3, 8, 8))).train.x
    assert [200, 30] == [round(float(one.float().mean())) for one in read[:2]]


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize(("turned", "ends"), [(1, [0, 255, 0, 255]), (6, [0, 0, 255, 255])])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_tiff_is_held_as_exif_says(
    tmp_path: Path, compression: str | None, turned: int, ends: list[int], kind: type
) -> None:
    """Of 8 and 16 bits, compressed or not: its four corners."""
    exif = Image.Exif()
    exif[image_decoding.ORIENTATION] = turned
    file = tmp_path / "1.tif"
    pixels = halves(0, np.iinfo(kind).max).astype(kind)[:4]
    Image.fromarray(pixels).save(file, exif=exif, compression=compression)
    shape = (1, 8, 4) if turned == 6 else (1, 4, 8)
    seen = image_decoding.look(file)
    assert (shape, kind == np.uint16) == (seen.shape, seen.wide)
    read = image_decoding.read(file, Target(shape, Scale(0, 65535)))[0]
    assert ends == read[[0, 0, -1, -1], [0, -1, 0, -1]].tolist()
    if kind == np.uint16:
        assert shape[1:] == image_decoding.read_wide(file).shape


def test_a_window_is_said_for_all(tmp_path: Path) -> None:
    """data.json's wins over the files', and takes the warning away that they say none."""
    for number, label in enumerate(("cat", "dog")):
        write_dicom(tmp_path / "train" / label / "1", halves(number, 1000).astype(np.int16))
    run = spec(shape=(1, 8, 8))
    assert any("no window" in words for words in data.describe(folder(tmp_path)).warnings)
    assert [0, 255] == data.load(folder(tmp_path), run).train.x[0, 0, 0, [0, -1]].tolist()
    (tmp_path / "data.json").write_text('{"dicom_window": [1000, 4001]}')
    assert not any("no window" in words for words in data.describe(folder(tmp_path)).warnings)
    assert [64, 128] == data.load(folder(tmp_path), run).train.x[0, 0, 0, [0, -1]].tolist()


def _png(wide: int, high: int) -> bytes:
    """The first bytes of a picture that says it is so large."""
    said = b"IHDR" + wide.to_bytes(4, "big") + high.to_bytes(4, "big") + b"\x08\x00\x00\x00\x00"
    return (
        b"\x89PNG\r\n\x1a\n"
        + b"\x00\x00\x00\r"
        + said
        + zlib.crc32(said).to_bytes(4, "big")
        + bytes(4)
        + b"IDAT"
    )


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_a_file_that_another_program_would_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPS under a picture's name: it is no picture here, and Ghostscript is not started."""
    started = tmp_path / "bin" / "started"
    started.parent.mkdir()
    (tmp_path / "bin" / "gs").write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    (tmp_path / "bin" / "gs").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    (tmp_path / "e.png").write_bytes(EPS)
    for read in (
        lambda: image_decoding.look(tmp_path / "e.png"),
        lambda: image_decoding.read(tmp_path / "e.png", Target((1, 4, 4))),
    ):
        with pytest.raises(image_decoding.Unreadable, match="its format is not known"):
            read()
    assert not started.exists()


def test_the_formats_that_are_opened_are_decoded_here() -> None:
    """A new release of Pillow adds none by itself."""
    assert {"PNG", "JPEG", "TIFF", "WEBP"} <= set(image_decoding._formats()) <= set(image_decoding.FORMATS)
    assert "EPS" in Image.OPEN


@pytest.mark.parametrize(
    "content",
    [
        _png(65_536, 65_536),
        b"GIF89a\xff\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00\x02\x00;",
        b"P5 65535 65535 255\n",
        b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\xfe\x3f\x00\xfe\x3f\x00" + bytes(9),
    ],
    ids=["png", "gif", "pgm", "webp"],
)
def test_a_picture_that_claims_too_many_pixels(tmp_path: Path, content: bytes) -> None:
    """A few bytes that say 65,536 x 65,536: refused by what they say."""
    (tmp_path / "p.png").write_bytes(content)
    with pytest.raises(image_decoding.Unreadable, match=r"more than \d+ million pixels"):
        image_decoding.read(tmp_path / "p.png", Target((1, 4, 4)))


def test_a_file_too_large_for_a_picture(tmp_path: Path) -> None:
    """Some decoders read a file whole: one of gigabytes is not handed to any."""
    with (tmp_path / "p.webp").open("wb") as file:
        file.write(b"RIFF\x00\x00\x00\x00WEBPVP8 ")
        file.truncate(image_decoding.LARGEST_FILE + 1)
    with pytest.raises(image_decoding.Unreadable, match=r"the file has 2\.1 GB"):
        image_decoding.look(tmp_path / "p.webp")
