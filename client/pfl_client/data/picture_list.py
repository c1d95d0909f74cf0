"""Reads lists of pictures: tables with the columns `file` and `label`, and if the site wants `patient` and `part`.

A list names files inside the data folder by paths relative to it. One that leads out, by `..`, from the root or through
a link, is an error: the folder is what the site has agreed to use.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from pfl_client.data.findings import show
from pfl_client.data.picture import Picture
from pfl_client.data.record_file import SUFFIXES, RecordFile
from pfl_common.errors import DataError, nearest

WHOLE = "samples"
"""A list of all parts, also called data; its pictures are divided by this program if no column says their parts."""
_WHOLES = (WHOLE, "data")
FILE_COLUMNS = ("file", "image", "path")
"""A table with one of these columns is a list of pictures."""
LABEL, PATIENT, PART = "label", "patient", "part"


@dataclass(frozen=True)
class Lists:
    """The lists of a folder by part, or one of all parts under the name `samples`."""

    files: dict[str, Path]

    @property
    def names(self) -> str:
        """Their names, for errors and terminals."""
        return ", ".join(path.name for path in self.files.values())


def file_column(names: Sequence[str]) -> str | None:
    """The column that names pictures, if there is one."""
    return next((name for name in FILE_COLUMNS if name in names), None)


def is_list(path: Path) -> bool:
    """Whether a file is a table that names pictures. One that cannot be read is for others to explain."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    with suppress(DataError):
        return file_column(RecordFile(path, called=path.name, headless=True).names) is not None
    return False


def find(folder: Path, parts: Sequence[str]) -> Lists | None:
    """The lists of pictures in a folder, if it has any."""
    found = [
        (WHOLE if name in _WHOLES else name, folder / f"{name}{suffix}")
        for name in (*_WHOLES, *parts)
        for suffix in SUFFIXES
        if is_list(folder / f"{name}{suffix}")
    ]
    files = dict(found)
    if len(files) < len(found) or (WHOLE in files and len(files) > 1):
        raise DataError(
            f"the data folder holds the lists {', '.join(path.name for _, path in found)}",
            expected="one list for each part (train.csv, test.csv), or samples.csv alone",
            advice="move the others away",
        )
    return Lists(files) if files else None


def read(lists: Lists, folder: Path, parts: Sequence[str], *, grouped: bool) -> dict[str, list[Picture]]:
    """The pictures by part, in the lists' order; those that no column puts into a part are under `samples`."""
    named: dict[str, list[Picture]] = {part: [] for part in lists.files}
    for part, path in lists.files.items():
        for picture, own in read_list(path, folder, patient=PATIENT if grouped else ""):
            if own is not None:
                _check_part(own, path, parts, picture.position)
            named.setdefault(own or part, []).append(picture)
    if named.get(WHOLE) == [] and len(named) > 1:
        del named[WHOLE]
    return named


def read_list(
    path: Path, folder: Path, *, label: str = LABEL, patient: str = ""
) -> Iterator[tuple[Picture, str | None]]:
    """Each picture of a list, and the part that its row says; None: the list has no such column.

    Without `label`, a column's name, pictures have no class; without `patient` the column of that name is taken, if
    there is one.
    """
    table = RecordFile(path, called=path.name)
    groups = patient or (PATIENT if PATIENT in table.names else "")
    said = PART if PART in table.names else ""
    column = file_column(table.names) or FILE_COLUMNS[0]
    word = "row" if path.suffix.lower() == ".parquet" else "line"
    for rows in table.read([name for name in dict.fromkeys((column, label, groups, said)) if name]):
        empty = ("",) * len(rows)
        cells = (rows.columns.get(name, empty) for name in (column, label, groups, said))
        for place, file, class_, group, part in zip(rows.lines, *cells, strict=True):
            position = f"{word} {place} of {path.name}"
            _check_row(file, class_ if label else "none", position)
            # One spelling of accents, as of the names of class folders.
            class_, group = (unicodedata.normalize("NFC", cell) for cell in (class_, group))
            picture = Picture(position, class_, _inside(folder, file, position), file, group)
            yield picture, part if said else None


def _check_row(file: str, label: str, position: str) -> None:
    for what, cell in (("file", file), (LABEL, label)):
        if not cell:
            raise DataError(
                f"{position} has no {what}",
                expected="the path of a picture and its class in each row",
                advice="fill it in, or remove the row",
            )


def _check_part(part: str, path: Path, parts: Sequence[str], position: str) -> None:
    if path.stem not in _WHOLES and part != path.stem:
        raise DataError(
            f"{position} says another part than the list's own in its column 'part'",
            expected=f"{path.stem!r}, or no such column; one list of all parts is called samples{path.suffix}",
            advice="correct it, or rename the list",
        )
    if part not in parts:
        raise DataError(
            f"{position} says an unknown part in its column 'part'" if part else f"{position} says no part",
            expected=", ".join(parts),
            advice=f"correct it: {nearest(part[:40], parts)}",
        )


def _inside(folder: Path, file: str, position: str) -> Path:
    """The file of a row, which has to lie in the data folder."""
    given = PurePosixPath(file)
    absolute = given.is_absolute() or PureWindowsPath(file).is_absolute()
    outside = absolute or ".." in given.parts or "\0" in file
    # A link inside the folder may lead out of it.
    if outside or not (folder / given).resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{position} names a file outside the data folder",
            expected="a path relative to the data folder, without .., that no link leads out of",
            advice="copy the picture into the data folder, and name it there",
            file=show(Path(file.replace("\0", "?"))),
        )
    return folder / given
