"""Data folders that are made to do harm: each writer gives a folder in which all else is as it should be."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.client.data.drawn import write_dicom

MEGABYTE = 1 << 20
BOMB_MEGABYTES = 3300
DEEP = 5_000_000
Writer = Callable[[Path], None]


def write_pictures(folder: Path) -> None:
    """Two classes of sound pictures, a training and a test part."""
    for part, count in (("train", 8), ("test", 4)):
        for place, name in enumerate(("benign", "malignant")):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = np.full((16, 16), 60 + 100 * place + number, np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")


def write_arrays(folder: Path, *, y: np.ndarray | None = None) -> None:
    """Sound arrays, but for these labels."""
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        labels = np.arange(24) % 2 if y is None or part == "test" else y
        np.savez(folder / f"{part}.npz", x=np.zeros((len(labels), 8, 8), np.uint8), y=labels)


def postscript_called_png(folder: Path) -> None:
    """A program for Ghostscript under the name of a picture, beside sound ones."""
    write_pictures(folder)
    head = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n"
    (folder / "train" / "benign" / "e.png").write_bytes(head + b"(%pipe%touch executed) (w) file\nshowpage\n")


def label_of_a_hundred_million(folder: Path) -> None:
    """One wrong label, for which as many classes would be made."""
    write_arrays(folder, y=np.array([0, 1] * 12 + [10**8]))


def three_megabytes_of_gigabytes(folder: Path) -> None:
    """An archive that unpacks a thousand to one."""
    write_arrays(folder)
    _write_bomb(folder / "train.npz")


def _write_bomb(file: Path) -> None:
    shape = (BOMB_MEGABYTES * 16, 256, 256)
    head, labels = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    np.save(labels, np.arange(shape[0]) % 2)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = packer.compress(head.getvalue()) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = begin + block * BOMB_MEGABYTES + packer.flush()
    size = len(head.getvalue()) + BOMB_MEGABYTES * MEGABYTE
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("y.npy", labels.getvalue())
    _append_member(file, b"x.npy", packed, size)


def _append_member(file: Path, name: bytes, packed: bytes, size: int) -> None:
    """A member that is packed already, put before the archive's list."""
    content = file.read_bytes()
    end = content.rindex(b"PK\5\6")
    at = struct.unpack("<I", content[end + 16 : end + 20])[0]
    facts = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 0, len(packed), size, len(name), 0)
    local = b"PK\3\4" + facts + name + packed
    listed = (
        content[at:end]
        + b"PK\1\2"
        + struct.pack("<H", 20)
        + facts
        + struct.pack("<HHHII", 0, 0, 0, 0, at)
        + name
    )
    close = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 2, 2, len(listed), at + len(local), 0)
    file.write_bytes(content[:at] + local + listed + close)


def header_beyond_the_file(folder: Path) -> None:
    """A header of a hundred bytes that names a terabyte."""
    write_arrays(folder)
    head = io.BytesIO()
    said = {"descr": "|u1", "fortran_order": False, "shape": (2**20, 1024, 1024)}
    np.lib.format.write_array_header_1_0(head, said)
    labels = io.BytesIO()
    np.save(labels, np.arange(24) % 2)
    with zipfile.ZipFile(folder / "train.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue())
        archive.writestr("y.npy", labels.getvalue())


def encrypted_archive(folder: Path) -> None:
    """An archive whose members say that they are encrypted."""
    write_arrays(folder)
    content = bytearray((folder / "train.npz").read_bytes())
    for sign, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.find(sign)
        while at >= 0:
            content[at + place] |= 1
            at = content.find(sign, at + 4)
    (folder / "train.npz").write_bytes(content)


def linked_class_folders(folder: Path) -> None:
    """Class folders that are links to somebody else's pictures."""
    elsewhere = folder.parent / "of_somebody_else"
    write_pictures(elsewhere)
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        for name in ("benign", "malignant"):
            (folder / part / name).symlink_to(elsewhere / part / name)


def class_of_unreadable_files(folder: Path) -> None:
    """A class of which no file is a picture."""
    write_pictures(folder)
    for part in ("train", "test"):
        (folder / part / "none").mkdir()
        for number in range(8):
            (folder / part / "none" / f"{number}.png").write_bytes(b"no picture " * number)


def sides_of_png(folder: Path) -> None:
    """A hundred thousand pixels square, of which few bytes unpack to many."""
    write_pictures(folder)
    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    pieces = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(300 * MEGABYTE), 9)), (b"IEND", b""))
    content = b"".join(
        struct.pack(">I", len(one)) + kind + one + struct.pack(">I", zlib.crc32(kind + one))
        for kind, one in pieces
    )
    (folder / "train" / "benign" / "large.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def sides_of_tiff(folder: Path) -> None:
    """A directory that claims 4,000 million pixels square in strips that are not there."""
    write_pictures(folder)
    tags = {256: 2**32 - 1, 257: 2**32 - 1, 258: 8, 259: 8, 262: 1, 273: 8, 277: 1, 278: 2**32 - 1, 279: 64}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    content = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4 + 64)
    (folder / "train" / "benign" / "large.tif").write_bytes(content)


def sides_of_webp(folder: Path) -> None:
    """A canvas of 16,384 pixels square, twice a thousand frames."""
    write_pictures(folder)
    canvas = struct.pack("<I", 16_383)[:3] * 2
    body = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + canvas
    body += b"ANIM" + struct.pack("<IIH", 6, 0, 0)
    frame = bytes(6) + canvas + bytes(4) + b"VP8L" + struct.pack("<I", 6) + b"/\xff\xff\xff\x0f\0"
    body += (b"ANMF" + struct.pack("<I", len(frame)) + frame) * 2000
    content = b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body
    (folder / "train" / "benign" / "large.webp").write_bytes(content)


def sides_of_dicom(folder: Path) -> None:
    """65,535 pixels square, with pixels for none of them."""
    write_pictures(folder)
    pixels = np.zeros((8, 8), np.uint16)
    file = folder / "train" / "benign" / "large.dcm"
    write_dicom(file, pixels, personal=False, Rows=65_535, Columns=65_535)


def nested_declaration(folder: Path) -> None:
    """What a site says of its data, in five million brackets."""
    write_pictures(folder)
    (folder / "data.json").write_bytes(b"[" * DEEP)


def nested_class_names(folder: Path) -> None:
    """A list of classes in five million brackets."""
    write_arrays(folder)
    (folder / "classes.json").write_bytes(b"[" * DEEP)


def nested_rows(folder: Path) -> None:
    """JSON lines, one of them nested."""
    folder.mkdir(parents=True)
    rows = [json.dumps({"age": n, "label": "ab"[n % 2]}) for n in range(24)]
    (folder / "train.jsonl").write_text("\n".join([*rows[:12], "[" * DEEP, *rows[12:]]))


def quotation_never_closed(folder: Path) -> None:
    """A table of 300 MB that is one cell."""
    folder.mkdir(parents=True)
    with (folder / "train.csv").open("wb") as file:
        file.write(b'age,label\n1,a\n2,"')
        for _ in range(300):
            file.write(b"x" * (MEGABYTE - 1) + b"\n")


def a_million_columns(folder: Path) -> None:
    """A table whose first line names a million columns."""
    folder.mkdir(parents=True)
    names = ",".join(f"c{number}" for number in range(1_000_000))
    (folder / "train.csv").write_text(f"{names},label\n" + ",".join(["1"] * 1_000_000) + ",a\n")


def names_that_terminals_obey(folder: Path) -> None:
    """Class folders whose names clear the screen, ring and turn the direction of writing."""
    write_pictures(folder)
    for part in ("train", "test"):
        (folder / part / "benign").rename(folder / part / "\x1b[2J\x1b]0;owned\x07\u202ebenign")


FOLDERS: dict[str, Writer] = {
    one.__name__: one
    for one in (
        *(postscript_called_png, label_of_a_hundred_million, three_megabytes_of_gigabytes),
        *(header_beyond_the_file, encrypted_archive, linked_class_folders, class_of_unreadable_files),
        *(sides_of_png, sides_of_tiff, sides_of_webp, sides_of_dicom),
        *(nested_declaration, nested_class_names, nested_rows, quotation_never_closed, a_million_columns),
        names_that_terminals_obey,
    )
}
