"""Reads samples to predict, batch by batch, prepared by the same code as a site's own data.

Only one batch is in memory at a time. A file that cannot be read is handed to `unread`, and the others go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pfl_client.data import arrays, forms, image_decoding, images, picture_list, vocabulary
from pfl_client.data.array_file import Rows, read_rows
from pfl_client.data.arrays import Arrays, Part
from pfl_client.data.class_folders import SYSTEM_FILES
from pfl_client.data.declaration import FILE, Declared, read_declared
from pfl_client.data.forms import Form
from pfl_client.data.image_decoding import Target
from pfl_client.data.labelled_rows import LABEL
from pfl_client.data.layout import ArrayFiles
from pfl_client.data.record_file import is_record_file
from pfl_client.data.vocabulary import Vocabulary
from pfl_client.data.warnings import number_classes
from pfl_client.prediction.listed_pictures import read_listed
from pfl_client.prediction.row_samples import choose_label, read_samples, read_windows, reads_rows
from pfl_client.prediction.table_file import Columns, Roles, TableRows, read_table
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError, SettingError
from pfl_common.spec.data_description import alike, kind_of
from pfl_common.spec.run import ClientId, RunSpec

BESIDE = (FILE, "classes.json", "vocabulary.json")
"""Files of a data folder that describe the others."""
_ARRAYS = (".npz", ".npy")


@dataclass(frozen=True)
class Wanted:
    """How files are read."""

    like: Path | None = None
    """The data folder whose data.json, vocabulary.json and classes.json say what arrays are; None: each file's own."""
    labelled: bool = False
    """Whether the class of each sample is read too."""
    label: str = ""
    """Tables: the column of the class."""
    group: str = ""
    """Tables: the column that says which samples belong together."""


@dataclass(frozen=True)
class Unread:
    """A file, or a row of one, that cannot be read."""

    file: Path
    place: int
    """Which of the files it is, from 1: logs name it so."""
    why: str
    row: int | None = None


@dataclass(frozen=True)
class Block:
    """Some samples of one kind, in the run's shape."""

    files: tuple[Path, ...]
    rows: tuple[int | None, ...]
    """Places in files that hold several samples, from 1."""
    x: Tensor
    """Bytes for pictures, which become numbers when they are taken."""
    labels: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """The run's number of each sample's class, if wanted."""
    groups: tuple[str, ...] = ()
    place: int = 0
    """The place of its last file among all."""

    def __len__(self) -> int:
        return len(self.files)


def list_inputs(paths: Sequence[str | Path]) -> list[Path]:
    """The files below some paths, folders in the order of names; files that describe a data folder are left out."""
    files: list[Path] = []
    seen: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise SettingError(
                f"there is no file or folder {path}",
                expected="files and folders to predict",
                advice="check the path",
            )
        files += _walk(path, seen) if path.is_dir() else [path]
    return files


def _walk(folder: Path, seen: set[Path]) -> Iterator[Path]:
    # Links to folders are followed, each folder once: a link may lead to one above it.
    if (real := folder.resolve()) in seen:
        return
    seen.add(real)
    for entry in sorted(folder.iterdir(), key=lambda entry: os.fsencode(entry.name)):
        if entry.is_dir():
            yield from _walk(entry, seen)
        elif (
            not entry.name.startswith(".")
            and entry.name.lower() not in SYSTEM_FILES
            and entry.name not in BESIDE
            and not picture_list.is_list(entry)  # the pictures that it names are below this folder too
        ):
            yield entry


class Inputs:
    """Reads files for one model."""

    def __init__(
        self,
        spec: RunSpec,
        site: ClientId,
        *,
        wanted: Wanted,
        unread: Callable[[Unread], None],
        dicom_window: tuple[float, float] | None = None,
    ) -> None:
        """`dicom_window` is what the site trained with; the data.json that `wanted` finds may say another."""
        self._spec, self._site, self._wanted, self._unread = spec, site, wanted, unread
        self._dicom_window = dicom_window

    def blocks(self, files: Sequence[Path], most: int) -> Iterator[Block]:
        """All samples of some files, at most `most` at a time."""
        pictures: list[tuple[Path, Tensor]] = []
        for place, file in enumerate(files, start=1):
            try:
                if file.suffix.lower() in _ARRAYS:
                    yield from (replace(block, place=place) for block in self._arrays(file, most))
                elif self._pictured and picture_list.is_list(file):
                    yield from (replace(block, place=place) for block in self._listed(file, place, most))
                elif is_record_file(file):
                    yield from (replace(block, place=place) for block in self._rows(file, place, most))
                else:
                    pictures.append((file, self._picture(file)))
            except image_decoding.Unreadable as error:
                self._unread(Unread(file, place, str(error)))
            except DataError as error:
                self._unread(
                    Unread(file, place, f"{error.seen} ({error.advice})" if error.advice else error.seen)
                )
            if len(pictures) == most:
                yield _join(pictures, place)
                pictures = []
        if pictures:
            yield _join(pictures, len(files))

    @property
    def _pictured(self) -> bool:
        """Whether the model is for pictures."""
        return kind_of(self._spec.model, "image") == "image"

    def _folder(self, file: Path) -> DataFolder:
        return DataFolder(self._wanted.like or file.parent, self._site)

    def _picture(self, file: Path) -> Tensor:
        folder = self._folder(file)
        images.check_run(folder, self._spec)
        if self._wanted.labelled:
            raise DataError(
                "a picture by itself has no class",
                expected="a data folder",
                advice="name the folder above the folders of the classes",
            )
        return image_decoding.read(file, self._target(folder))

    def _target(self, folder: DataFolder) -> Target:
        declared = read_declared(folder.path)
        window = declared.dicom_window or self._dicom_window
        return images.target_of(self._spec, replace(declared, dicom_window=window))

    def _listed(self, file: Path, place: int, most: int) -> Iterator[Block]:
        """The pictures that a list names, with its classes and groups if they are wanted."""
        folder, wanted = self._folder(file), self._wanted
        images.check_run(folder, self._spec)
        target = self._target(folder)
        label = (wanted.label or picture_list.LABEL) if wanted.labelled else ""

        def bad(picture: Path, row: int, why: str) -> None:
            self._unread(Unread(picture, place, why, row))

        named = picture_list.read_list(file, file.parent, label=label, patient=wanted.group)
        for pictures, x in read_listed((one for one, _ in named), target, most=most, bad=bad):
            block = Block(tuple(one.path for one in pictures), (None,) * len(x), x)
            if wanted.labelled:
                groups = tuple(one.unit for one in pictures) if any(one.group for one in pictures) else ()
                labels = self._labels([one.label for one in pictures], folder)
                block = replace(block, labels=labels, groups=groups)
            yield block

    def _arrays(self, file: Path, most: int) -> Iterator[Block]:
        folder = self._folder(file)
        declared = self._declared(folder)
        text = self._words(file, folder, declared)
        for rows in read_rows(file, labelled=self._wanted.labelled, most=most):
            form = forms.recognise(rows.x, declared, file=file.name, words=text is not None)
            # How numbers are stored was told when the run began: a few of them do not show it.
            if form.values == "signed" and self._spec.model.values in ("unit", "byte_floats"):
                form = replace(form, values=self._spec.model.values)
            labels = self._number(rows, folder)
            x = self._fit(rows, form, text, folder)
            places = tuple(range(rows.first, rows.first + len(x)))
            yield Block((file,) * len(x), places, x, labels)

    def _fit(self, rows: Rows, form: Form, text: Vocabulary | None, folder: DataFolder) -> Tensor:
        try:
            x = forms.arrange(rows.x, form, file="the file")
            if form.kind == "tokens":
                text = vocabulary.check(text, {"the file": x})
            return self._prepare(x, form, text, folder)
        except DataError as error:
            last = rows.first + len(rows.x) - 1
            seen = f"{error.seen}, of its rows {rows.first} to {last}"
            raise DataError(seen, expected=error.expected, advice=error.advice) from None

    def _prepare(self, x: forms.Column, form: Form, text: Vocabulary | None, folder: DataFolder) -> Tensor:
        """As a site's own samples are prepared, by the same functions."""
        read = Arrays({"x": Part(x, np.zeros(len(x), np.int64))}, (), form, text)
        arrays.check_values(read, folder, self._spec)
        return arrays.fit_part("x", read, folder, spec=self._spec)

    def _declared(self, folder: DataFolder) -> Declared:
        declared, kind = read_declared(folder.path), self._spec.model.kind
        return replace(declared, kind=kind) if declared.kind is None and kind else declared

    def _words(self, file: Path, folder: DataFolder, declared: Declared) -> Vocabulary | None:
        if kind_of(self._spec.model, "array") != "tokens":
            return None
        beside = folder.path / "vocabulary.json"
        found = vocabulary.read(
            ArrayFiles({"train": file}, None, beside if beside.is_file() else None), declared
        )
        if found is None and self._spec.model.numbering == "numbers":
            return Vocabulary("numbers", self._spec.model.tokens)
        return vocabulary.check(found, {})

    def _number(self, rows: Rows, folder: DataFolder) -> Tensor:
        """The run's class numbers in place of the site's own."""
        if rows.y is None:
            return torch.empty(0, dtype=torch.int64)
        own = [int(label) for label in rows.y.tolist()]
        named = folder.path / "classes.json"
        names = arrays.read_names(named) if named.is_file() else None
        if own and (min(own) < 0 or (names is not None and max(own) >= len(names))):
            raise DataError(
                f"it has the label {min(own) if min(own) < 0 else max(own)}",
                expected="labels from 0 on, as many as classes.json names",
                advice="number the classes as in the site's own data",
            )
        return self._labels([names[label] if names else str(label) for label in own], folder)

    def _labels(self, names: Sequence[str], folder: DataFolder) -> Tensor:
        numbers = number_classes(set(names), folder, self._spec)
        return torch.tensor([numbers[name] for name in names], dtype=torch.int64)

    def _rows(self, file: Path, place: int, most: int) -> Iterator[Block]:
        """The rows of a file, or the windows of a recording."""
        model, folder = self._spec.model, self._folder(file)
        if model.kind == "windows":
            yield self._recording(file, folder)
            return

        def bad(row: int, why: str) -> None:
            self._unread(Unread(file, place, why, row))

        if reads_rows(model):
            for samples in read_samples(file, model, self._roles(file, folder), most=most, bad=bad):
                labels = self._labels(samples.labels, folder)
                files = (file,) * len(samples.x)
                yield Block(files, samples.places, samples.x, labels, samples.groups)
            return
        if alike(kind_of(model, "array")) != alike("table") or len(model.shape) != 1:
            raise DataError("it is a table, and the model is for data of another kind", advice="leave it out")
        roles = self._roles(file, folder)
        columns = Columns(model.shape[0], model.columns, roles.label, roles.group)
        for rows in read_table(file, columns, most=most, bad=bad):
            if rows.places:
                yield self._tabled(file, rows, folder)

    def _roles(self, file: Path, folder: DataFolder) -> Roles:
        """The columns that are no features, where the class is wanted."""
        if not self._wanted.labelled:
            return Roles()
        label = choose_label(file, self._wanted.label, self._declared(folder), default=LABEL)
        if not label:
            raise SettingError("a table does not say which column is the class", expected="--label COLUMN")
        return Roles(label, self._wanted.group)

    def _recording(self, file: Path, folder: DataFolder) -> Block:
        if self._wanted.labelled:
            raise DataError(
                "a recording by itself has no class",
                expected="a data folder",
                advice="name the folder above the folders of the classes",
            )
        windows = read_windows(file, self._spec.model, self._declared(folder))
        x = self._prepare(windows, Form("channels_time"), None, folder)
        return Block((file,) * len(x), tuple(range(1, len(x) + 1)), x)

    def _tabled(self, file: Path, rows: TableRows, folder: DataFolder) -> Block:
        form = Form("table")
        x = self._prepare(rows.x, form, None, folder)
        labels = self._labels(rows.labels, folder)
        return Block((file,) * len(x), rows.places, x, labels, rows.groups)


def _join(pictures: list[tuple[Path, Tensor]], place: int) -> Block:
    files, tensors = zip(*pictures, strict=True)
    return Block(files, (None,) * len(files), torch.stack(tensors), place=place)
