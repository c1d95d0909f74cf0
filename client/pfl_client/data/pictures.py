"""Folders of images: one look at each file to describe them, one reading to train on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import structlog
import torch

from pfl_client.bench import DataFolder
from pfl_client.data import pixels
from pfl_client.data.layout import PARTS, Picture, PictureFolders
from pfl_client.data.remarks import enumerate_names, number_classes, remark
from pfl_common.errors import DataError
from pfl_common.halves import Samples
from pfl_common.run import Description, RunSpec

log = structlog.get_logger(__name__)


def describe(found: PictureFolders, folder: DataFolder) -> Description:
    """Shape, classes, number of training images and warnings, from the first bytes of each file."""
    shapes: list[tuple[int, int, int]] = []
    counts: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    bad: list[Picture] = []
    for part, pictures in found.parts.items():
        for picture in pictures:
            try:
                shape = pixels.look(picture.path)
                # A run is made for what is trained on, whatever the second test looks like.
                shapes += [shape] if part != "shifted" else []
                counts[part][picture.label] += 1
            except pixels.Unreadable as error:
                _refuse_if_strict(picture, error, folder, total=found.total)
                bad.append(picture)
    if not counts["train"]:
        raise _nothing_readable(bad, folder)
    return Description(
        shape=_common_shape(shapes),
        classes=tuple(sorted(set().union(*counts.values()))),
        samples=counts["train"].total(),
        kind="image",
        warnings=(*_oddities(found, bad), *_size_warnings(shapes, folder), *remark(counts, folder)),
    )


def load(found: PictureFolders, folder: DataFolder, spec: RunSpec) -> dict[str, Samples]:
    """All images in the run's size and colours, as bytes."""
    shape = spec.model.shape
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise DataError(
            f"{folder.site} has images, the run's samples have the shape {shape}",
            expected="a run on images: (1 or 3 channels, height, width)",
            advice="check --data, or join another run",
        )
    labels = {picture.label for part in found.parts.values() for picture in part}
    numbers = number_classes(labels, folder, spec)
    parts = {
        part: _read(found.parts[part], numbers, folder, shape=shape, total=found.total) for part in PARTS
    }
    if not len(parts["train"]):
        raise _nothing_readable(found.parts["train"], folder)
    return parts


def _read(
    pictures: Iterable[Picture],
    numbers: dict[str, int],
    folder: DataFolder,
    *,
    shape: tuple[int, ...],
    total: int,
) -> Samples:
    every = list(pictures)
    x = torch.empty((len(every), *shape), dtype=torch.uint8)
    y: list[int] = []
    for picture in every:
        try:
            x[len(y)] = pixels.read(picture.path, shape)
            y.append(numbers[picture.label])
        except pixels.Unreadable as error:
            _refuse_if_strict(picture, error, folder, total=total)
            log.warning("a file is left out", place=picture.place, files=total, why=str(error))
    return Samples(x[: len(y)], torch.tensor(y, dtype=torch.int64))


def _refuse_if_strict(picture: Picture, error: pixels.Unreadable, folder: DataFolder, *, total: int) -> None:
    if folder.strict:
        raise DataError(
            f"file {picture.place} of {total} is no image that can be read: {error}",
            expected="images only, because of --strict-data",
            advice=f"repair or remove {picture.path.relative_to(folder.path)}, or leave --strict-data out",
        )


def _nothing_readable(pictures: Iterable[Picture], folder: DataFolder) -> DataError:
    every = list(pictures)
    return DataError(
        f"none of the training files of {folder.site} is an image that can be read",
        expected="png, jpeg, bmp or another common format",
        advice=f"look at {every[0].path.relative_to(folder.path)}" if every else "look into the train folder",
    )


def _common_shape(shapes: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    """The size most images have (of equally frequent ones the larger), in colour as soon as one image is."""
    sizes = Counter(size[1:] for size in shapes)
    height, width = max(sizes, key=lambda size: (sizes[size], size))
    return max(shape[0] for shape in shapes), height, width


def _oddities(found: PictureFolders, bad: list[Picture]) -> list[str]:
    warnings = []
    if found.divided:
        warnings.append(
            "no train and test folders: a quarter of each class is kept for testing, always the same files"
        )
    if found.empty:
        warnings.append(f"class folders without a file: {enumerate_names(found.empty)}")
    if bad:
        places = ", ".join(str(picture.place) for picture in bad[:5]) + (", ..." if len(bad) > 5 else "")
        warnings.append(
            f"{len(bad)} of {found.total} files are no images that can be read and are left out: {places}"
        )
    return warnings


def _size_warnings(shapes: list[tuple[int, int, int]], folder: DataFolder) -> list[str]:
    sizes = Counter(f"{height}x{width}" for _, height, width in shapes)
    if len(sizes) < 2:
        return []
    common = ", ".join(f"{size} ({count} images)" for size, count in sizes.most_common(3))
    if folder.strict:
        raise DataError(
            f"the images of {folder.site} have {len(sizes)} different sizes: {common}",
            expected="images of one size, because of --strict-data",
            advice="bring them to one size, or leave --strict-data out to have them resized",
        )
    return [f"images of {len(sizes)} different sizes are resized to the run's: {common}"]
