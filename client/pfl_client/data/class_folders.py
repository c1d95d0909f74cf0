"""Lists pictures that lie in one folder per class, and in those, if the site says so, in one folder per patient."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

from pfl_client.data.picture import Picture
from pfl_common.errors import DataError
from pfl_common.printable import is_printable, printable

SYSTEM_FILES = ("thumbs.db", "desktop.ini")
_ESCAPES = dict(zip("\a\b\f\n\r\t\v \\", (rf"\{sign}" for sign in "abfnrtv \\"), strict=True))


def list_classes(path: Path, *, part: str = "", grouped: bool = False) -> tuple[list[Picture], list[str]]:
    """The pictures of each class folder, in the order of names, and the classes that have none."""
    pictures: list[Picture] = []
    empty: list[str] = []
    for label, inside in _sorted(path, Path.is_dir):
        _check_text(inside.name)
        where = f"{part}/{label}" if part else label
        own = _list_groups(inside, label, where) if grouped else _list_files(inside, label, where)
        pictures += own
        if not own:
            empty.append(where)
    return pictures, empty


def has_folders(path: Path) -> bool:
    """Whether there are folders in class folders, as of a site that sorts pictures by patient."""
    return any(entry.is_dir() for inside in path.iterdir() if inside.is_dir() for entry in inside.iterdir())


def _list_groups(path: Path, label: str, where: str) -> list[Picture]:
    """The files of each folder in a class. Its name is a patient's, so its position says only which it is."""
    if loose := _sorted(path, Path.is_file):
        raise DataError(
            f"{where} holds {len(loose)} files beside its folders, and data.json says that folders are groups",
            expected="<class>/<group>/<picture>",
            advice="put each picture into the folder of what it belongs to, such as a patient",
        )
    places = _places(path)
    pictures: list[Picture] = []
    for group, inside in _sorted(path, Path.is_dir):
        pictures += _list_files(inside, label, f"folder {places[inside]} of {where}", group=group)
    return pictures


def _list_files(path: Path, label: str, where: str, *, group: str = "") -> list[Picture]:
    places = _places(path)
    return [
        Picture(f"file {places[file]} of {where}", label, file, file.name, group)
        for _, file in _sorted(path, Path.is_file)
    ]


def _sorted(path: Path, wanted: Callable[[Path], bool]) -> list[tuple[str, Path]]:
    """Entries by name, without the system's. One spelling of accents: macOS writes them as two letters."""
    named = [(unicodedata.normalize("NFC", entry.name), entry) for entry in path.iterdir()]
    return sorted(
        (name, entry)
        for name, entry in named
        if not name.startswith(".") and name.lower() not in SYSTEM_FILES and wanted(entry)
    )


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


def _places(folder: Path) -> dict[Path, int]:
    """Each entry's place in what `ls` shows, whatever it is."""
    seen = sorted((os.fsencode(entry.name), entry) for entry in folder.iterdir())
    return {
        entry: place
        for place, (_, entry) in enumerate((e for e in seen if not e[0].startswith(b".")), start=1)
    }
