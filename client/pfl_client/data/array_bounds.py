"""What an .npz or .npy claims to hold, checked before any of it is unpacked.

A few bytes can claim more than a machine has: zeros are packed a thousand to one, and a header of a hundred bytes names
any shape. So the sizes in the archive's directory are held against the file's own, and each array's header against the
bytes that are there.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from pfl_common.errors import DataError

SMALL = 1 << 30
"""An archive may become so large however small it is: real data that are mostly zeros are no attack."""
MOST_EXPANDED = 64
"""Beyond that an archive may become so many times its size. numpy.savez does not pack, and always fits."""
LONGEST_HEADER = 65_535
"""Bytes of an array's header; numpy itself takes 10,000 letters."""
ARRAYS = ("x.npy", "y.npy", "vocabulary.npy")
"""What is read of an archive."""
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that numpy writes; others expand a million to one."""
_ENCRYPTED = 1
_READERS = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
"""By version: bytes of a header's length, and who reads it."""


@dataclass(frozen=True)
class Outline:
    """What an array's header says; its numbers are not read."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    turned: bool
    """Column-major."""
    header_bytes: int

    @property
    def nbytes(self) -> int:
        """The bytes of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


def check_archive(path: Path) -> None:
    """Refuse an archive that is encrypted, packed in an unusual way, or claims far more than its file holds."""
    with reading(path.name), zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        _check_names(path.name, [member.filename for member in archive.infolist()])
        for member in members.values():
            _check_packing(path.name, member)
        claimed, most = sum(one.file_size for one in members.values()), _most(path.stat().st_size)
        if claimed > most:
            raise _too_large(path.name, claimed, most)
        for name in members.keys() & set(ARRAYS):
            with archive.open(name) as content:
                _check_outline(f"{name} of {path.name}", read_outline(content), members[name].file_size)


def check_single(path: Path) -> None:
    """The same of an .npy, which is not packed."""
    with reading(path.name), path.open("rb") as content:
        _check_outline(path.name, read_outline(content), path.stat().st_size)


def read_outline(content: IO[bytes]) -> Outline:
    """The header of an array; the stream then stands where its numbers begin."""
    version = np.lib.format.read_magic(content)
    if version not in _READERS:
        raise unreadable(f"its arrays are of version {version[0]}.{version[1]}")
    width, read = _READERS[version]
    said = content.read(width)
    length = int.from_bytes(said, "little")
    if len(said) < width or length > LONGEST_HEADER:
        raise unreadable(f"an array's header has {length} bytes")
    try:
        shape, turned, dtype = read(BytesIO(said + content.read(length)))
    except Exception as error:  # a parser of Python's own literals, which raises whatever it stumbles over
        raise unreadable(f"an array's header cannot be read: {type(error).__name__}") from None
    if any(side < 0 for side in shape):
        raise unreadable(f"an array has the shape {shape}")
    return Outline(shape, dtype, turned, len(np.lib.format.magic(*version)) + width + length)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """While open, whatever a damaged archive raises is told in words; a lack of memory is the caller's to tell."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except PermissionError:
        raise DataError(
            f"{name} may not be read: Permission denied",
            expected="files that the user of this program may read",
            advice="look at ls -l, or start the program as a user who may read it",
        ) from None
    except Exception as error:  # zipfile, zlib and numpy between them raise a dozen kinds
        raise DataError(
            f"{name} cannot be read as arrays: {type(error).__name__}",
            expected="a file written by numpy.savez, without Python objects in it",
            advice="write it again, with plain arrays of numbers",
        ) from None


def unreadable(why: str) -> DataError:
    """A file of arrays that nobody can read, in words that name no file."""
    return DataError(
        why,
        expected="an .npz with an array x of samples (and y of classes, to evaluate), or an .npy of samples",
        advice="write it with numpy.savez(file, x=...), with plain arrays of numbers",
    )


def _most(size: int) -> int:
    return max(SMALL, MOST_EXPANDED * size)


def _check_names(name: str, members: Sequence[str]) -> None:
    """Refuse an archive in which two members answer to the name of an array: each reader could take another."""
    for array in ARRAYS:
        bare = array.removesuffix(".npy")
        if members.count(array) + members.count(bare) > 1:
            raise DataError(
                f"{name} holds two arrays {bare}",
                expected="each array once",
                advice="write it again with numpy.savez",
            )


def _check_packing(name: str, member: zipfile.ZipInfo) -> None:
    if member.flag_bits & _ENCRYPTED:
        raise DataError(
            f"{name} is encrypted",
            expected="an .npz that can be read without a password",
            advice="unpack it with the password, and write it again with numpy.savez",
        )
    if member.compress_type not in _PACKINGS:
        raise DataError(
            f"{name} is packed in a way that numpy does not write ({member.compress_type})",
            expected="a file written by numpy.savez or numpy.savez_compressed",
            advice="write it again with numpy.savez",
        )


def _check_outline(name: str, outline: Outline, there: int) -> None:
    if outline.dtype.hasobject:
        return  # refused by who reads it, in words of its own
    claimed = outline.header_bytes + outline.nbytes
    if claimed > there:
        raise DataError(
            f"the header of {name} claims {claimed} bytes ({outline.dtype} {outline.shape}), and {there} are there",
            expected="an array that is whole",
            advice="the file is cut short or made up: write it again with numpy.savez",
        )
    if outline.shape and outline.shape[0] > there:
        raise DataError(
            f"{name} has more rows than bytes ({outline.dtype} {outline.shape})",
            expected="one number or more for each sample",
            advice="check how the file was made",
        )


def _too_large(name: str, claimed: int, most: int) -> DataError:
    return DataError(
        f"{name} would become {claimed / 1e9:.1f} GB when it is unpacked, more than {MOST_EXPANDED} times its size",
        expected=f"at most {most / 1e9:.1f} GB from a file of this size",
        advice="if the data are really so, write them with numpy.savez, which does not pack; a file of another origin "
        "may be made to fill this machine's memory",
    )
