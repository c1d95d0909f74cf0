"""Recognises the kind of a data folder and lists its files; only lists of pictures are opened here.

train.npz  test.npz  [validation.npz] [shifted.npz] [classes.json] [vocabulary.json]   arrays
train/<class>/*  test/<class>/*  [validation/<class>/*] [shifted/<class>/*]    images, or recordings (.csv), in parts
<class>/*                                                                      the same, divided by ourselves
train.csv  test.csv  [validation.csv] [shifted.csv]            a table, texts, or a list of images with a column `file`
data.csv                                                       the same, divided by ourselves

`test` is drawn like `train`; `shifted` is a second test of samples that came about otherwise: another device,
another year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pfl_client.data import class_folders, links, picture_list
from pfl_client.data.declaration import FILE, Declared, read_declared
from pfl_client.data.findings import show
from pfl_client.data.picture import Picture
from pfl_client.data.record_file import SUFFIXES
from pfl_client.data.row_files import UNDIVIDED, RowFiles, find_rows
from pfl_client.data.split import divide
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError

SHIFTED = "shifted"
"""A second test: nothing of the run is chosen by it."""
PARTS = ("train", "validation", "test", SHIFTED)
_KNOWN = (
    *(
        f"{name}{suffix}"
        for name in (*PARTS, UNDIVIDED, picture_list.WHOLE)
        for suffix in (".npz", *SUFFIXES)
    ),
    *(FILE, "classes.json", "vocabulary.json"),
)
"""Files that are read wherever they lie in the data folder."""
FORMATS = (
    "train.npz and test.npz, or train.csv and test.csv, or data.csv alone (also .parquet, .jsonl), or folders of "
    "images or recordings as train/<class>/ and test/<class>/, or <class>/ alone"
)


@dataclass(frozen=True)
class PictureFolders:
    """Image files by part, in an order that depends on their names alone."""

    parts: dict[str, tuple[Picture, ...]]
    empty: tuple[str, ...]
    """Class folders without a file."""
    divided: bool
    """Whether train and test are our division, not the site's."""
    lists: tuple[Path, ...] = ()
    """The tables that name them; none: they lie in class folders."""

    @property
    def grouped(self) -> bool:
        """Whether some belong together."""
        return any(picture.group for part in self.parts.values() for picture in part)

    @property
    def total(self) -> int:
        """The number of files."""
        return sum(len(part) for part in self.parts.values())

    @property
    def files(self) -> list[Path]:
        """All of them, and the lists."""
        return [*(picture.path for part in self.parts.values() for picture in part), *self.lists]


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


Found: TypeAlias = "PictureFolders | ArrayFiles | RowFiles"
"""What a data folder can hold. Recordings are found as pictures are: each file in the folder of a class is one."""


def find(folder: DataFolder) -> Found:
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


def _find(folder: DataFolder) -> Found:
    path = folder.path
    _check_folder(path)
    _check_links(folder)
    declared = read_declared(path)
    lists = None if declared.kind not in (None, "image") else picture_list.find(path, PARTS)
    if lists is not None:
        return _list_named(lists, folder, declared)
    if (rows := find_rows(path, PARTS)) is not None:
        return rows
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
    grouped = _is_grouped(declared)
    if not folders:
        return _divide(folder, grouped=grouped)
    return _list_parts(folders, grouped=grouped, follow=folder.follow_links)


def _check_links(folder: DataFolder) -> None:
    """Each file that is known by its name, and the folders of the parts; class folders look at their own."""
    for name in (*PARTS, *_KNOWN):
        links.check(folder.path / name, "the data folder", follow=folder.follow_links)


def _is_grouped(declared: Declared) -> bool:
    if declared.groups == "patient":
        raise DataError(
            "data.json says 'patient' for 'groups', and no list of pictures has such a column",
            expected='"folder" for <class>/<patient>/<picture>',
            advice='correct "groups" in data.json, or remove it',
        )
    return declared.groups == "folder"


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


def _list_parts(folders: dict[str, Path], *, grouped: bool, follow: bool) -> PictureFolders:
    parts: dict[str, list[Picture]] = {}
    empty: list[str] = []
    for part, path in folders.items():
        parts[part], without = class_folders.list_classes(path, part=part, grouped=grouped, follow=follow)
        empty += without
    if not parts["train"]:
        raise DataError(
            "the folder train holds no images in class folders",
            expected="train/<class>/<image>",
            advice=f"make one folder per class in {folders['train']} and put its images there"
            + _mention_groups(folders["train"], grouped=grouped),
        )
    return _gather(parts, empty, divided=False)


def _divide(folder: DataFolder, *, grouped: bool) -> PictureFolders:
    every, empty = class_folders.list_classes(folder.path, grouped=grouped, follow=folder.follow_links)
    if not every:
        raise DataError(
            "the data folder holds nothing this program can read",
            expected=FORMATS,
            advice=f"look into {folder.path}: if the images lie side by side, "
            f"make one folder per class and put them there{_mention_groups(folder.path, grouped=grouped)}",
        )
    train, test = divide(every, folder.site)
    return _gather({"train": train, "test": test}, empty, divided=True)


def _mention_groups(path: Path, *, grouped: bool) -> str:
    if grouped or not class_folders.has_folders(path):
        return ""
    return '; if they lie as <class>/<patient>/<image>, say {"groups": "folder"} in data.json'


def _list_named(lists: picture_list.Lists, folder: DataFolder, declared: Declared) -> PictureFolders:
    if declared.groups == "folder":
        raise DataError(
            f"data.json says 'folder' for 'groups', and {lists.names} lists the pictures",
            expected='"patient", with a column of that name',
            advice='correct "groups" in data.json, or remove it: a column patient is found by its name',
        )
    named = picture_list.read(lists, folder.path, PARTS, grouped=declared.groups == "patient")
    tables, divided = tuple(lists.files.values()), picture_list.WHOLE in named
    if divided:
        train, test = divide(named[picture_list.WHOLE], folder.site)
        named = {"train": train, "test": test}
    if not named.get("train"):
        raise DataError(
            f"{lists.names} names no pictures to train on",
            expected="a train.csv, or a samples.csv with rows whose part is train",
            advice="look at this file",
        )
    return _gather(named, [], divided=divided, lists=tables)


def _gather(
    parts: Mapping[str, Sequence[Picture]],
    empty: Sequence[str],
    *,
    divided: bool,
    lists: tuple[Path, ...] = (),
) -> PictureFolders:
    return PictureFolders({part: tuple(parts.get(part, ())) for part in PARTS}, tuple(empty), divided, lists)
