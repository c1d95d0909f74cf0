"""DICOM files: the grey levels the standard asks for, what is refused in words, and no word about the patient."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.pixels.processing import apply_modality_lut, apply_windowing
from pydicom.sequence import Sequence
from pydicom.uid import DeflatedExplicitVRLittleEndian, JPEG2000Lossless, JPEGLosslessSV1, RLELossless
from structlog.testing import capture_logs

from pfl_client import data
from pfl_client.data import dicom, image_decoding
from pfl_client.data.dicom import Head, Unusable, Window
from pfl_common.errors import DataError
from tests.client.data.drawn import halves, write_dicom
from tests.client.data.test_images import folder, spec

MOST = 10**6
HOUNSFIELD = {"RescaleSlope": 1, "RescaleIntercept": -1024}


def pixels(path: Path, *, most: int = MOST, **settings: Any) -> np.ndarray:
    """The picture of a file."""
    with path.open("rb") as file:
        return dicom.read(file, most=most, **settings)


def head(path: Path) -> Head:
    """Its size."""
    with path.open("rb") as file:
        return dicom.read_head(file, most=MOST)


def read(path: Path, **settings: Any) -> list[int]:
    """The grey levels of the left and of the right side."""
    return pixels(path, **settings)[0, [0, -1]].tolist()


def test_values_are_rescaled_before_the_window(tmp_path: Path) -> None:
    """A scan of -160 and 240 in a window from -160 to 240 is black and white; a wider one leaves it grey."""
    stored = halves(864, 1264).astype(np.uint16)
    file = write_dicom(tmp_path / "1", stored, **HOUNSFIELD, WindowCenter=40, WindowWidth=400)
    assert [0, 255] == read(file)
    assert [77, 179] == read(file, window=Window(40, 1000))


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize(("slope", "stored"), [(1, np.int16), (2.5, np.uint16)])
def test_windows_are_those_of_the_standard(tmp_path: Path, function: str, slope: float, stored: type) -> None:
    """As pydicom's own, which has another range of grey levels, computes them."""
    values = np.linspace(0, 4000, 4096).round().reshape(64, 64).astype(stored)
    tags = {"RescaleSlope": slope, "RescaleIntercept": -100, "VOILUTFunction": function}
    file = write_dicom(tmp_path / "1", values, WindowCenter=[1500, 7], WindowWidth=[900, 7], **tags)
    tagged = dcmread(file)
    ours = pixels(file)
    theirs = apply_windowing(apply_modality_lut(values, tagged), tagged)
    low, high = theirs.min(), theirs.max()
    assert np.abs(ours - 255 * (theirs - low) / (high - low)).max() <= 1


def test_white_as_the_lowest_value_is_turned(tmp_path: Path) -> None:
    """MONOCHROME1: what is stored as a small number is light."""
    tags = {"PhotometricInterpretation": "MONOCHROME1", "WindowCenter": 100.5, "WindowWidth": 200}
    assert [255, 1] == read(write_dicom(tmp_path / "1", halves(0, 199).astype(np.uint16), **tags))


def test_eight_bits_without_a_window_are_grey_levels(tmp_path: Path) -> None:
    """They are shown as they are; wider ones between their own ends, and that is said."""
    plain = write_dicom(tmp_path / "1", halves(30, 90).astype(np.uint8))
    assert ([30, 90], False) == (read(plain), head(plain).windowless)
    wide = write_dicom(tmp_path / "2", halves(-500, 90).astype(np.int16))
    assert ([0, 255], True) == (read(wide), head(wide).windowless)


def test_a_window_that_means_nothing_is_none(tmp_path: Path) -> None:
    """Empty tags, or a width of 0, are no window."""
    for width in ("", 0):
        file = write_dicom(
            tmp_path / "1", halves(3, 900).astype(np.uint16), WindowCenter=5, WindowWidth=width
        )
        assert head(file).windowless


def test_colours(tmp_path: Path) -> None:
    """RGB of 8 and 16 bits; YBR becomes RGB."""
    red = np.zeros((4, 4, 3), np.uint8)
    red[..., 0] = 250
    assert [[250, 0, 0]] == pixels(write_dicom(tmp_path / "1", red))[0, :1].tolist()
    deep = red.astype(np.uint16) * 257
    assert [[250, 0, 0]] == pixels(write_dicom(tmp_path / "2", deep))[0, :1].tolist()
    grey = np.full((4, 4, 3), 128, np.uint8)
    file = write_dicom(tmp_path / "3", grey, PhotometricInterpretation="YBR_FULL")
    assert [[128, 128, 128]] == pixels(file)[0, :1].tolist()
    assert (3, 4, 4) == head(file).shape


@pytest.mark.parametrize("packed", ["RLELossless", "JPEG2000Lossless"])
def test_compressed_files_are_read(tmp_path: Path, packed: str) -> None:
    """With the decoders that come with pydicom and Pillow."""
    file = write_dicom(tmp_path / "1", halves(0, 200).astype(np.uint8))
    found = dcmread(file)
    if packed == "RLELossless":
        found.compress(RLELossless)
    else:
        stream = io.BytesIO()
        Image.fromarray(found.pixel_array).save(stream, "JPEG2000", irreversible=False, no_jp2=True)
        found.PixelData = encapsulate([stream.getvalue()])
        found.file_meta.TransferSyntaxUID = JPEG2000Lossless
    found.save_as(file)
    assert [0, 200] == read(file)


REFUSED = {
    "3 frames": {"NumberOfFrames": 3},
    "neither grey nor RGB": {"PhotometricInterpretation": "PALETTE COLOR"},
    "without a picture": {"Rows": None},
    "more than 0 million pixels": {"Rows": 30_000, "Columns": 30_000},
    "damaged, cut short": {"Rows": 60},
}


@pytest.mark.parametrize("words", REFUSED)
def test_other_files_are_refused_in_words(tmp_path: Path, words: str) -> None:
    """Nothing that a picture is made of by guessing."""
    file = write_dicom(tmp_path / "1", halves(1, 9).astype(np.uint8))
    changed = dcmread(file)
    for name, value in REFUSED[words].items():
        setattr(changed, name, value)
    changed.save_as(file)
    with pytest.raises(Unusable, match=words):
        pixels(file, most=MOST if "million" not in words else 10**5)


def test_a_compression_without_a_decoder_is_named(tmp_path: Path) -> None:
    """By its number in the standard, with the packages that know it."""
    file = write_dicom(tmp_path / "1", halves(1, 9).astype(np.uint8))
    packed = dcmread(file)
    packed.file_meta.TransferSyntaxUID = JPEGLosslessSV1
    packed.PixelData = b"\xfe\xff\x00\xe0\x00\x00\x00\x00\xfe\xff\xdd\xe0\x00\x00\x00\x00"
    packed["PixelData"].is_undefined_length = True
    packed.save_as(file)
    with pytest.raises(Unusable, match=rf"{JPEGLosslessSV1}.*pylibjpeg"):
        pixels(file)


def test_without_pydicom_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One error for the folder, not one for each file."""
    write_dicom(tmp_path / "train" / "ill" / "1", halves(1, 9).astype(np.uint8))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(DataError, match="pydicom is not installed") as error:
        data.describe(folder(tmp_path))
    assert "pfl-net[medical]" in error.value.advice


def test_tags_of_a_patient_are_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are skipped in the file: what is not there cannot be said."""
    file = write_dicom(tmp_path / "1", halves(1, 9).astype(np.uint8))
    assert "PatientName" in dcmread(file)
    read_tags: set[str] = set()
    reading = pydicom.dcmread

    def watch(*words: Any, **settings: Any) -> Dataset:
        found = reading(*words, **settings)
        read_tags.update(element.keyword for element in found)
        return found

    monkeypatch.setattr(pydicom, "dcmread", watch)
    pixels(file)
    head(file)
    assert "PixelData" in read_tags
    assert not {
        name for name in read_tags if name.startswith(("Patient", "Institution", "Study", "Referring"))
    }


def test_what_pydicom_says_of_a_file_is_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither as a log line nor as a warning, which are errors in tests; afterwards it may speak again."""
    file = write_dicom(tmp_path / "1", halves(1, 9).astype(np.uint8))
    logger, reading = logging.getLogger("pydicom.anything"), pydicom.dcmread

    def complain(*words: Any, **settings: Any) -> Dataset:
        logger.error("the value Canary is odd")
        warnings.warn("the value Canary is odd", stacklevel=1)
        return reading(*words, **settings)

    monkeypatch.setattr(pydicom, "dcmread", complain)
    pixels(file)
    head(file)
    assert "" == caplog.text
    logger.error("heard")
    assert "heard" in caplog.text


def break_at(file: Path, share: float) -> None:
    """Cut a file, or write over its middle."""
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])


def spoil(file: Path, **tags: Any) -> None:
    """Tags that are not what the standard asks for, which pydicom complains of with their values."""
    found = dcmread(file)
    for name, value in tags.items():
        setattr(found, name, value)
    found.save_as(file)


def test_nothing_said_of_a_patient_is_ever_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """Sound, cut, spoiled and unreadable files, in all that is logged, warned of, described, raised and found."""
    caplog.set_level(logging.DEBUG)
    for number in range(12):
        for place, label in enumerate(("ill", "well")):
            values = halves(number, 400 + 200 * place + number).astype(np.uint16)
            write_dicom(tmp_path / "train" / label / f"{number}", values, **HOUNSFIELD)
    ill = tmp_path / "train" / "ill"
    break_at(ill / "1", 0.4)
    break_at(ill / "2", 0.95)
    spoil(ill / "3", NumberOfFrames=3)
    with pytest.warns(UserWarning, match="canary"):
        spoil(ill / "4", PatientBirthDate="canary birth", PatientAge="canary age")
    sequence = Dataset()
    sequence.PatientName = "Canary^Nested"
    spoil(ill / "5", ReferencedPatientSequence=Sequence([sequence]))
    spoil(ill / "7", WindowCenter=12345, WindowWidth=9)
    (ill / "7").write_bytes((ill / "7").read_bytes().replace(b"12345.0 ", b"canary-1"))
    (ill / "6").write_bytes((ill / "5").read_bytes().replace(b"MONOCHROME2 ", b"canarycanary"))
    caplog.clear()  # of what writing them has said
    told: list[str] = []
    with capture_logs() as lines:
        for ask in (
            lambda: data.describe(folder(tmp_path, most_bad=0.5)),
            lambda: data.describe(folder(tmp_path, most_bad=0)),
            lambda: data.describe(folder(tmp_path, strict=True)),
            lambda: data.load(folder(tmp_path, most_bad=0.5), spec((1, 8, 8), ("ill", "well"))),
            lambda: data.look_through(tmp_path),
        ):
            try:
                told.append(repr(ask()))
            except DataError as error:
                told += [str(error), repr(error), error.file, repr(error.__context__), repr(error.__cause__)]
    assert 4 <= sum("left out" in str(line) for line in lines), "the bad ones were met"
    everything = "\n".join([*told, *map(str, lines), caplog.text, *(str(w.message) for w in recwarn)])
    assert "canary" not in everything.lower()


def test_a_file_that_is_packed_as_a_whole(tmp_path: Path) -> None:
    """The library would unpack all of it at once: zeros of a few kilobytes become megabytes, of megabytes gigabytes."""
    path = write_dicom(tmp_path / "p.dcm", halves(0, 200, side=512).astype(np.uint8))
    found = pydicom.dcmread(path)
    found.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    found.save_as(path, enforce_file_format=True)
    with pytest.raises(image_decoding.Unreadable, match="deflated as a whole"):
        image_decoding.look(path)
