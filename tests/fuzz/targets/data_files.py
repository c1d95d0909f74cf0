"""A site's data: whatever lies in its folder is data, or an error that says what it is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

from pfl_client import data
from pfl_client.data import image_decoding, picture_list
from pfl_client.data.array_file import Rows, read_rows
from pfl_client.data.declaration import read_declared
from pfl_client.data.image_decoding import Target, Unreadable
from pfl_client.data.record_file import RecordFile
from pfl_client.data.recordings import Cut, read_one
from pfl_client.data.scaling import Scale
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from tests.client.data.drawn import halves, write_dicom
from tests.client.data.written import write_rows
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import as_file, target

ROWS = [{"age": str(n), "ward": "ab"[n % 2], "label": ("ill", "well")[n % 2]} for n in range(8)]


def _archives() -> list[bytes]:
    made = []
    for save in (np.savez, np.savez_compressed):
        stored = io.BytesIO()
        save(stored, x=np.zeros((4, 8, 8, 1), np.uint8), y=np.arange(4) % 2)
        made.append(stored.getvalue())
    return made


@target(
    "npz",
    DataError,
    seeds=_archives,
    words=(b"PK\x01\x02", b"PK\x03\x04", b"x.npy", b"'shape': (9999999999,)"),
)
def read_archive(content: bytes) -> None:
    """Arrays to train on, and to predict."""
    file = as_file(content, "arrays/train.npz")
    with ends_in(DataError):
        _compare(read_rows(file, labelled=True, most=8), file)
    data.describe(DataFolder(file.parent, "site-a"))


def _compare(rows: Iterable[Rows], file: Path) -> None:
    """Read block by block an array is what numpy reads at once."""
    blocks = list(rows)
    if not blocks:
        return
    with np.load(file, allow_pickle=False) as loaded:
        whole = loaded["x"] if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
        assert (
            np.concatenate([block.x for block in blocks]).tobytes() == np.ascontiguousarray(whole).tobytes()
        )


@target(
    "npy",
    DataError,
    seeds=lambda: [_npy(), _npy()[:40]],
    words=(b"'shape': (9999999999,)", b"|O", b"<f8", b"("),
)
def read_array(content: bytes) -> None:
    """An array to predict."""
    for _ in read_rows(as_file(content, "p.npy"), labelled=False, most=8):
        pass


def _npy() -> bytes:
    stored = io.BytesIO()
    np.save(stored, np.zeros((4, 8, 8), np.float32))
    return stored.getvalue()


def pictures() -> list[bytes]:
    """One of each format, and one that is none of them."""
    made = []
    image = Image.fromarray(halves(20, 220).astype(np.uint8))
    for form in ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "PPM"):
        stored = io.BytesIO()
        image.save(stored, form)
        made.append(stored.getvalue())
    return [*made, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"]


@target(
    "picture",
    DataError,
    Unreadable,
    seeds=pictures,
    words=(b"IHDR", b"IDAT", b"eXIf", b"Exif\0\0MM", b"acTL"),
)
def read_picture(content: bytes) -> None:
    """A picture: its first bytes, then whole, as large as those say."""
    file = as_file(content, "picture")
    seen = image_decoding.look(file)
    channels, height, width = seen.shape
    assert channels in (1, 3)
    assert min(height, width) >= 1
    fitted = image_decoding.read(file, Target((3, 4, 4), Scale(0, 65535)))
    assert (3, 4, 4) == tuple(fitted.shape)
    if height * width <= 4096:
        assert seen.shape == tuple(image_decoding.read(file, Target(seen.shape, Scale(0, 65535))).shape)


def _dicom() -> list[bytes]:
    place = as_file(b"", "made.dcm")
    grey = write_dicom(place, halves(0, 200).astype(np.uint16), WindowCenter=40, WindowWidth=400).read_bytes()
    return [grey, write_dicom(place, np.zeros((4, 4, 3), np.uint8)).read_bytes()]


@target(
    "dicom",
    DataError,
    Unreadable,
    seeds=_dicom,
    words=(b"1.2.840.10008.1.2.1.99", b"SQ", b"\xff\xff\xff\xff", b"DICM"),
)
def read_dicom(content: bytes) -> None:
    """The same of DICOM; nothing else is tried with these bytes."""
    read_picture(
        content if content[128:132] == b"DICM" else content[:128].ljust(128, b"\0") + b"DICM" + content[132:]
    )


def _read_rows(file: Path) -> None:
    table = RecordFile(file, called="it")
    cells = [row for rows in table.read(most=3) for row in zip(*rows.columns.values(), strict=True)]
    with suppress(ValueError, UnicodeEncodeError):  # too long a row, or half a sign, has no form in CSV
        assert cells == _write_again(table.names, cells)
    for rows in RecordFile(file, called="it", headless=True).read(most=3):
        assert len(rows) <= 3
    picture_list.is_list(file)
    with ends_in(DataError):
        read_one(file, Cut(2, 1))
    data.describe(DataFolder(file.parent, "site-a"))


def _write_again(names: Sequence[str], cells: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A table as it is read once it has been written as CSV: in every format it is the same."""
    place = as_file(b"", "again/again.csv")
    with place.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([names, *cells])
    again = RecordFile(place, called="again")
    assert tuple(names) == again.names
    return [row for rows in again.read() for row in zip(*rows.columns.values(), strict=True)]


def _csv() -> list[bytes]:
    return [
        write_rows(as_file(b"", "made.csv"), ROWS).read_bytes(),
        b"time,x\n0,1.5\n1,2\n2,-3\n",
        b"1,2\n3,4\n",
    ]


@target("csv", DataError, seeds=_csv, words=(b'""', b'"\n', b",,,", b"\r\n", b"1e999", b"nan"))
def read_csv(content: bytes) -> None:
    """A table as CSV: as rows, as a recording, as a site's data."""
    _read_rows(as_file(content, "csv/train.csv"))


@target(
    "jsonl",
    DataError,
    seeds=lambda: ["\n".join(map(json.dumps, ROWS)).encode()],
    words=(b'"\\ud800"', b"1e999", b"[[", b"NaN"),
)
def read_jsonl(content: bytes) -> None:
    """A table as JSON lines."""
    _read_rows(as_file(content, "jsonl/train.jsonl"))


@target(
    "parquet",
    DataError,
    seeds=lambda: [write_rows(as_file(b"", "made.parquet"), ROWS).read_bytes()],
    words=(b"PAR1",),
)
def read_parquet(content: bytes) -> None:
    """A table as Parquet."""
    _read_rows(as_file(content, "parquet/train.parquet"))


DECLARATIONS = (
    b'{"kind": "image", "layout": "channels_last", "range": [0, 4095]}',
    b'{"kind": "table", "label": "outcome", "leave_out": ["name"], "tell_categories": {"hashed": 64}}',
    b'{"kind": "windows", "window": 128, "step": 64, "time": "seconds"}',
    b'{"kind": "tokens", "vocabulary": {"hashed": 32000}, "label": "diagnosis", "patient": "id"}',
    b'{"kind": "image", "dicom_window": [40, 400], "groups": "folder", "values": "unit"}',
)


@target(
    "data_json",
    DataError,
    seeds=lambda: [*DECLARATIONS],
    words=(b"1e999", b"NaN", b'"\\ud800"', b"[[", b"9" * 400),
)
def read_declaration(content: bytes) -> None:
    """What a site says of its data."""
    declared = read_declared(as_file(content, "said/data.json").parent)
    assert declared.fewest_told >= 2


@target(
    "picture_list",
    DataError,
    seeds=lambda: [b"file,label,part\na.png,x,train\nb/c.png,y,test\n"],
    words=(b"../", b"/etc/passwd", b"\\"),
)
def read_list(content: bytes) -> None:
    """A list of pictures names files of its folder and no others."""
    file = as_file(content, "list/samples.csv")
    for picture, _ in picture_list.read_list(file, file.parent):
        assert picture.path.resolve().is_relative_to(file.parent.resolve())
