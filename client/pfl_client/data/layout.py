"""Recognises the kind of a data folder and lists its files; no file is opened here.

train.npz  test.npz  [validation.npz] [shifted.npz] [classes.json] [vocabulary.json]   arrays
train/<class>/*  test/<class>/*  [validation/<class>/*] [shifted/<class>/*]    images in parts
<class>/*                                                                      images that we divide ourselves

`test` is drawn like `train`; `shifted` is a second test of samples that came about otherwise: another device,
another year.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pfl_client.data.findings import show
from pfl_client.data.split import divide
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError

SHIFTED = "shifted"
"""A second test: nothing of the run is chosen by it."""
PARTS = ("train", "validation", "test", SHIFTED)
FORMATS = (
    "train.npz and test.npz, or folders of images as train/<class>/ and test/<class>/, or <class>/ alone"
)
SYSTEM_FILES = ("thumbs.db", "desktop.ini")
_ESCAPES = dict(zip("\a\b\f\n\r\t\v \\", (rf"\{sign}" for sign in "abfnrtv \\"), strict=True))


@dataclass(frozen=True)
class Picture:
    """One image file of a class. Logs name it by its position: the `place`-th entry of `LC_ALL=C ls` in `where`."""

    where: str
    place: int
    label: str
    path: Path

    @property
    def position(self) -> str:
        """Its place, in words."""
        return f"file {self.place} of {self.where}"


@dataclass(frozen=True)
class PictureFolders:
    """Image files by part, in an order that depends on their names alone."""

    parts: dict[str, tuple[Picture, ...]]
    empty: tuple[str, ...]
    """Class folders without a file."""
    divided: bool
    """Whether train and test are our division, not the site's."""

    @property
    def total(self) -> int:
        """The number of files."""
        return sum(len(part) for part in self.parts.values())

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [picture.path for part in self.parts.values() for picture in part]


@dataclass(frozen=True)
class ArrayFiles:
    """Array files by part, and the names of the classes where they are given."""

    parts: dict[str, Path]
    classes: Path | None
    vocabulary: Path | None = None
    """The words of texts, if a file of its own has them."""

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [*self.parts.values(), *(file for file in (self.classes, self.vocabulary) if file)]


Listed: TypeAlias = dict[str, list[tuple[str, Path]]]
"""(class, file) by part."""


def find(folder: DataFolder) -> PictureFolders | ArrayFiles:
    """The files of a data folder; an error says what was expected if its kind is unknown."""
    try:
        return _find(folder)
    except PermissionError as error:
        raise DataError(
            "the data folder, or a folder in it, may not be read: Permission denied",
            expected="folders and files that the user of this program may read",
            advice=f"look at ls -l, or start the program as a user who may read {folder.path}",
            file=show(Path(error.filename or "")),
        ) from None


def _find(folder: DataFolder) -> PictureFolders | ArrayFiles:
    path = folder.path
    _check_folder(path)
    files = {part: path / f"{part}.npz" for part in PARTS if (path / f"{part}.npz").is_file()}
    folders = {part: path / part for part in PARTS if (path / part).is_dir()}
    if folders.keys() == {"shifted"}:
        folders = {}  # the name of a class, like any other
    if files and folders:
        raise DataError(
            "the data folder holds both "
            f"{', '.join(f'{part}.npz' for part in files)} and the folder {', '.join(folders)}",
            expected="arrays or folders of images, not both",
            advice=f"move one of them away: they lie in {path}",
        )
    if (files or folders) and "train" not in (files or folders):
        raise DataError(
            f"the data folder has {' and '.join(files or folders)} but no train part",
            expected=FORMATS,
            advice=f"put the training samples in {path / ('train.npz' if files else 'train/<class>')}",
        )
    if files:
        classes, words = path / "classes.json", path / "vocabulary.json"
        return ArrayFiles(files, classes if classes.is_file() else None, words if words.is_file() else None)
    return _list_parts(folders) if folders else _divide(folder)


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DataError(
            f"the data folder {what}",
            expected="a folder",
            advice=f"check the path given with --data: {path}",
        )
    if not any(path.iterdir()):
        raise DataError(
            "the data folder is empty",
            expected=FORMATS,
            advice=f"put data in it, or check the path given with --data and whether its disk is mounted: {path}",
        )


def _list_parts(folders: dict[str, Path]) -> PictureFolders:
    listed: Listed = {}
    empty: list[str] = []
    for part, path in folders.items():
        listed[part], without = _list_classes(path)
        empty += [f"{part}/{name}" for name in without]
    if not listed["train"]:
        raise DataError(
            "the folder train holds no images in class folders",
            expected="train/<class>/<image>",
            advice=f"make one folder per class in {folders['train']} and put its images there",
        )
    return PictureFolders(_number(listed, divided=False), tuple(empty), divided=False)


def _divide(folder: DataFolder) -> PictureFolders:
    every, empty = _list_classes(folder.path)
    if not every:
        raise DataError(
            "the data folder holds nothing this program can read",
            expected=FORMATS,
            advice=f"look into {folder.path}: if the images lie side by side, "
            "make one folder per class and put them there",
        )
    train, test = divide(every, folder.site)
    return PictureFolders(_number({"train": train, "test": test}, divided=True), tuple(empty), divided=True)


def _list_classes(path: Path) -> tuple[list[tuple[str, Path]], list[str]]:
    """The files of each class folder, and the classes that have none."""
    files: list[tuple[str, Path]] = []
    empty: list[str] = []
    for name, inside in _sorted(path, Path.is_dir):
        _check_text(inside.name)
        own = [(name, file) for _, file in _sorted(inside, Path.is_file)]
        files += own
        if not own:
            empty.append(name)
    return files, empty


def _sorted(path: Path, wanted: Callable[[Path], bool]) -> list[tuple[str, Path]]:
    """Entries by name, without the system's. One spelling of accents: macOS writes them as two letters."""
    named = [(unicodedata.normalize("NFC", entry.name), entry) for entry in path.iterdir()]
    return sorted(
        (name, entry)
        for name, entry in named
        if not name.startswith(".") and name.lower() not in SYSTEM_FILES and wanted(entry)
    )


def _check_text(name: str) -> None:
    """A class is agreed by its name, which has to be text."""
    if name.encode(errors="replace").decode() != name:
        raise DataError(
            f"the name of a class folder is not UTF-8: {os.fsencode(name)!r}",
            expected="names of classes in UTF-8: they are compared with other sites'",
            advice=f"rename the folder that ls -b shows as {_escape(name)}, at every site alike",
        )


def _escape(name: str) -> str:
    """A name as `ls -b` shows it: bytes that are no text as three octal digits each."""
    return "".join(_ESCAPES.get(sign) or _escape_sign(sign) for sign in name)


def _escape_sign(sign: str) -> str:
    return sign if sign.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(sign))


def _number(listed: Listed, *, divided: bool) -> dict[str, tuple[Picture, ...]]:
    places: dict[Path, int] = {}
    for folder in {path.parent for own in listed.values() for _, path in own}:
        places |= _places(folder)
    return {
        part: tuple(
            Picture(label if divided else f"{part}/{label}", places[path], label, path)
            for label, path in listed.get(part, [])
        )
        for part in PARTS
    }


def _places(folder: Path) -> dict[Path, int]:
    """Each entry's place in what `ls` shows, whatever it is."""
    seen = sorted((os.fsencode(entry.name), entry) for entry in folder.iterdir())
    return {
        entry: place
        for place, (_, entry) in enumerate((e for e in seen if not e[0].startswith(b".")), start=1)
    }
