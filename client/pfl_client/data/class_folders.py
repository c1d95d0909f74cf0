"""Lists pictures that lie in one folder per class, and in those, if the site says so, in one folder per patient."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

from pfl_client.data import links
from pfl_client.data.links import places
from pfl_client.data.picture import Picture
from pfl_common.errors import DataError
from pfl_common.printable import is_printable, printable

SYSTEM_FILES = ("thumbs.db", "desktop.ini")
_ESCAPES = dict(zip("\a\b\f\n\r\t\v \\", (rf"\{sign}" for sign in "abfnrtv \\"), strict=True))


def list_classes(
    path: Path, *, part: str = "", grouped: bool = False, follow: bool = False
) -> tuple[list[Picture], list[str]]:
    """The pictures of each class folder, in the order of names, and the classes that have none.

    A link is an error, unless links are to be followed.
    """
    pictures: list[Picture] = []
    empty: list[str] = []
    listing = _list_groups if grouped else _list_files
    for label, inside in _sorted(path, Path.is_dir, part or "the data folder", follow=follow):
        _check_text(inside.name)
        where = f"{part}/{label}" if part else label
        own = listing(inside, label, where, follow=follow)
        pictures += own
        if not own:
            empty.append(where)
    return pictures, empty


def has_folders(path: Path) -> bool:
    """Whether there are folders in class folders, as of a site that sorts pictures by patient."""
    return any(entry.is_dir() for inside in path.iterdir() if inside.is_dir() for entry in inside.iterdir())


def _list_groups(path: Path, label: str, where: str, *, follow: bool) -> list[Picture]:
    """The files of each folder in a class. Its name is a patient's, so its position says only which it is."""
    if loose := _sorted(path, Path.is_file, where, follow=follow):
        raise DataError(
            f"{where} holds {len(loose)} files beside its folders, and data.json says that folders are groups",
            expected="<class>/<group>/<picture>",
            advice="put each picture into the folder of what it belongs to, such as a patient",
        )
    place = places(path)
    pictures: list[Picture] = []
    for group, inside in _sorted(path, Path.is_dir, where, follow=follow):
        within = f"folder {place[inside]} of {where}"
        pictures += _list_files(inside, label, within, group=group, follow=follow)
    return pictures


def _list_files(path: Path, label: str, where: str, *, follow: bool, group: str = "") -> list[Picture]:
    place = places(path)
    return [
        Picture(f"file {place[file]} of {where}", label, file, file.name, group)
        for _, file in _sorted(path, Path.is_file, where, follow=follow)
    ]


def _sorted(
    path: Path, wanted: Callable[[Path], bool], where: str, *, follow: bool
) -> list[tuple[str, Path]]:
    """Entries by name, without the system's. One spelling of accents: macOS writes them as two letters."""
    named = [(unicodedata.normalize("NFC", entry.name), entry) for entry in path.iterdir()]
    found = sorted(
        (name, entry)
        for name, entry in named
        if not name.startswith(".") and name.lower() not in SYSTEM_FILES and wanted(entry)
    )
    for _, entry in found:
        links.check(entry, where, follow=follow)
    return found


def _check_text(name: str) -> None:
    """A class is agreed by its name, which has to be text that is shown and not obeyed."""
    if name.encode(errors="replace").decode() != name:
        raise DataError(
            f"the name of a class folder is not UTF-8: {os.fsencode(name)!r}",
            expected="names of classes in UTF-8: they are compared with other sites'",
            advice=f"rename the folder that ls -b shows as {_escape(name)}, at every site alike",
        )
    if not is_printable(name):
        raise DataError(
            f"the name of a class folder holds signs that a terminal obeys instead of showing them: {printable(name)}",
            expected="names without control characters, signs that turn the direction of writing, and signs without "
            "width",
            advice=f"rename the folder that ls -b shows as {_escape(name)}, at every site alike",
        )


def _escape(name: str) -> str:
    """A name as `ls -b` shows it: bytes that are no text as three octal digits each."""
    return "".join(_ESCAPES.get(sign) or _escape_sign(sign) for sign in name)


def _escape_sign(sign: str) -> str:
    return sign if sign.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(sign))
