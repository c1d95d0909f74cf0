"""Array files are read a few rows at a time, and give what numpy reads at once."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pfl_client.data import array_file
from pfl_client.data.array_file import read_rows
from pfl_common.errors import DataError

X = np.arange(7 * 3 * 2, dtype=np.float64).reshape(7, 3, 2)
Y = np.arange(7) % 2


def joined(path: Path, *, most: int = 3) -> np.ndarray:
    """All rows, one block after the other."""
    return np.concatenate([rows.x for rows in read_rows(path, labelled=False, most=most)])


def test_blocks_together_are_the_array(tmp_path: Path) -> None:
    """Packed or not, with rows first or columns first, with labels."""
    for name, write, x in (
        ("plain", np.savez, X),
        ("packed", np.savez_compressed, X),
        ("columns", np.savez, np.asfortranarray(X)),
    ):
        write(tmp_path / f"{name}.npz", x=x, y=Y)
        assert np.array_equal(X, joined(tmp_path / f"{name}.npz")), name
    np.save(tmp_path / "bare.npy", X)
    assert np.array_equal(X, joined(tmp_path / "bare.npy"))
    blocks = list(read_rows(tmp_path / "plain.npz", labelled=True, most=3))
    assert [(1, 3), (4, 3), (7, 1)] == [(rows.first, len(rows.x)) for rows in blocks]
    assert Y.tolist() == [label for rows in blocks for label in rows.y]


def test_no_more_is_read_than_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are limited by bytes too, and a file's end is not looked at before its turn."""
    np.savez(tmp_path / "x.npz", x=X)
    monkeypatch.setattr(array_file, "BLOCK_BYTES", 2 * 6 * 8)
    assert [2, 2, 2, 1] == [len(rows.x) for rows in read_rows(tmp_path / "x.npz", labelled=False, most=100)]


def write_member(path: Path, header: dict[str, object], content: bytes = b"") -> None:
    """An archive whose array says of itself what is not so."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", stream.getvalue() + content)


def test_what_is_no_array_is_refused(tmp_path: Path) -> None:
    """Objects, rows that are missing, sizes that cannot be, other files."""
    np.savez(tmp_path / "objects.npz", x=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "other.npz", samples=X)
    np.savez(tmp_path / "labels.npz", x=X, y=Y[:3])
    (tmp_path / "text.npz").write_text("no archive")
    write_member(tmp_path / "short.npz", {"descr": "<f4", "fortran_order": False, "shape": (5, 2)}, b"1234")
    write_member(tmp_path / "huge.npz", {"descr": "<f4", "fortran_order": False, "shape": (5, 1 << 40)})
    for name, words in {
        "objects": "Python objects",
        "other": "no array 'x'",
        "labels": "3 rows beside 7 samples",
        "text": "BadZipFile",
        "short": "cut short",
        "huge": "claims 21990232555648 bytes",
    }.items():
        with pytest.raises(DataError, match=words):
            list(read_rows(tmp_path / f"{name}.npz", labelled=name == "labels", most=3))
