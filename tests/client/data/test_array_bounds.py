"""A file of arrays that claims more than it holds is refused before it is unpacked."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pfl_client import data
from pfl_client.data import array_bounds
from pfl_client.data.array_bounds import LONGEST_HEADER, MOST_EXPANDED, SMALL
from pfl_client.data.array_file import read_rows
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError

PEAK = 64 << 20
"""Bytes that a refusal may take."""


def npy(shape: tuple[int, ...], *, there: int = 8, dtype: str = "|u1", turned: bool = False) -> bytes:
    """An array whose header says this shape, with so many bytes after it."""
    said = io.BytesIO()
    np.lib.format.write_array_header_1_0(said, {"descr": dtype, "fortran_order": turned, "shape": shape})
    return said.getvalue() + bytes(there)


def pack(path: Path, *, packing: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
    """An archive of such arrays."""
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def pack_zeros(path: Path, gigabytes: float) -> Path:
    """An archive of a few MB that becomes so large: zeros, packed once and said to be there many times over."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as x:
            count = int(gigabytes * 1e9) // 64
            x.write(npy((count, 8, 8), there=0))
            block = bytes(1 << 24)
            for _ in range(-(-count * 64 // len(block))):
                x.write(block)
        archive.writestr("y.npy", npy((count,), there=count))
    return path


def encrypt(path: Path) -> Path:
    """Say of each member that it is encrypted, in both places where a zip says so."""
    content = bytearray(path.read_bytes())
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(magic)
        while at >= 0:
            content[at + place] |= 1
            at = content.find(magic, at + 4)
    path.write_bytes(content)
    return path


def fail(path: Path) -> str:
    """The error of a folder with this file, described in little memory; read for predicting it is refused as well."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as described:
            data.describe(DataFolder(path.parent, "site-3"))
        with pytest.raises(DataError):
            list(read_rows(path, labelled=True, most=8))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK
    assert 3 == described.value.exit_code
    assert described.value.advice
    return described.value.seen


def test_a_few_bytes_that_become_gigabytes(tmp_path: Path) -> None:
    """Three megabytes of packed zeros are refused by what the archive's directory says."""
    path = pack_zeros(tmp_path / "train.npz", 1.1)
    assert path.stat().st_size < SMALL / MOST_EXPANDED
    assert "would become 1.1 GB" in fail(path)


def test_data_that_are_mostly_zeros(tmp_path: Path) -> None:
    """Real data may be packed well: as long as they stay small, or are not packed, nothing is asked."""
    x, y = np.zeros((300, 64, 64), np.uint8), np.arange(300) % 2
    np.savez_compressed(tmp_path / "train.npz", x=x, y=y)
    assert x.nbytes > MOST_EXPANDED * (tmp_path / "train.npz").stat().st_size
    assert 300 == data.describe(DataFolder(tmp_path, "site-3")).samples


def test_an_encrypted_archive(tmp_path: Path) -> None:
    """It is said to be so, as an error of the data: trying again does not help."""
    np.savez(tmp_path / "train.npz", x=np.zeros((4, 8, 8), np.uint8), y=np.arange(4))
    assert "train.npz is encrypted" == fail(encrypt(tmp_path / "train.npz"))


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_packing_that_numpy_does_not_write(tmp_path: Path, packing: int) -> None:
    """Some become a million times as large."""
    path = pack(tmp_path / "train.npz", packing=packing, x=npy((1, 8)), y=npy((1,), there=1))
    assert "numpy does not write" in fail(path)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (npy((1 << 40, 8, 8)), "claims 70368744177"),
        (npy((1, 1 << 50)), "claims"),
        (npy((1, 8), there=7), "claims"),
        (npy((1 << 50, 0)), "more rows than bytes"),
        (npy((1 << 50,), dtype="|S0"), "more rows than bytes"),
        (npy((-1, 8)), "shape"),
        (b"\x93NUMPY\x02\x00" + (1 << 31).to_bytes(4, "little"), "an array's header has"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "header cannot be read"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"{'descr': '|u1',", "header cannot be read"),
        (b"\x93NUMPY\x03\x00" + bytes(60), "version 3.0"),
        (b"", "cannot be read as arrays"),
    ],
)
def test_a_header_that_claims_what_is_not_there(tmp_path: Path, x: bytes, words: str) -> None:
    """Whatever an array's header says, nothing is laid out for it before it is held against the bytes."""
    path = pack(tmp_path / "train.npz", x=x, y=npy((1,), there=1))
    assert words in fail(path)


def test_a_single_array_to_predict(tmp_path: Path) -> None:
    """An .npy is held against the file's size."""
    (tmp_path / "p.npy").write_bytes(npy((1 << 30, 64)))
    with pytest.raises(DataError, match="claims 68719476864 bytes"):
        list(read_rows(tmp_path / "p.npy", labelled=False, most=8))


def test_the_longest_header_is_bounded() -> None:
    """What one may be long is known beforehand."""
    outline = array_bounds.read_outline(io.BytesIO(npy((3, 4))))
    assert (3, 4) == outline.shape
    assert outline.header_bytes + 12 == len(npy((3, 4), there=12))
    assert outline.header_bytes < LONGEST_HEADER
