"""Folders of images: reads each file's head to describe them, and each file once to train on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import torch
from torch import Tensor

from pfl_client.data import image_decoding, picture_sums
from pfl_client.data.declaration import Declared
from pfl_client.data.disk_cache import DiskCache
from pfl_client.data.findings import BadFile, show
from pfl_client.data.layout import PARTS, SHIFTED, Picture, PictureFolders
from pfl_client.data.picture_rows import InCache, InMemory, PictureRows
from pfl_client.data.scaling import Scale
from pfl_client.data.value_spread import Spread
from pfl_client.data.warnings import enumerate_names, number_classes, remark, remark_sizes
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.logs import HERE_ALONE
from pfl_common.errors import DataError
from pfl_common.learning.method import Samples
from pfl_common.spec.data_description import MOST_SIZES
from pfl_common.spec.run import Description, RunSpec

MOST_TOLD = 20
"""Bad files that are told one by one."""

log = structlog.get_logger(__name__)


@dataclass
class Inspection:
    """The result of looking at each file of the folder."""

    found: PictureFolders
    looks: list[tuple[str, Picture, image_decoding.Look]] = field(default_factory=list)
    """By part."""
    bad: list[BadFile] = field(default_factory=list)
    spread: Spread = field(default_factory=Spread)
    """The values of those of 16 bits."""

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """Images that can be read, by part and class."""
        counts: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
        for part, picture, _ in self.looks:
            counts[part][picture.label] += 1
        return counts


def inspect(found: PictureFolders, folder: DataFolder, *, whole: bool = False) -> Inspection:
    """Look at the first bytes of each file, or at the `whole` of it; of those of 16 bits the values are counted too."""
    seen = Inspection(found)
    for part, pictures in found.parts.items():
        for picture in pictures:
            with _noting_bad(picture, folder, seen.bad):
                look = image_decoding.look(picture.path)
                if whole:
                    image_decoding.decode(picture.path, look)
                seen.looks.append((part, picture, look))
    wide = [(part, picture) for part, picture, look in seen.looks if look.wide]
    # Black and white are learned from the training part alone, as everything is; from the others if it has none.
    for _, picture in [one for one in wide if one[0] == "train"] or wide:
        with _noting_bad(picture, folder, seen.bad):
            seen.spread.add(image_decoding.read_wide(picture.path), picture.position)
    places = {file.path for file in seen.bad}
    seen.looks = [one for one in seen.looks if one[1].path not in places]
    return seen


def conclude(seen: Inspection, folder: DataFolder, declared: Declared) -> Description:
    """Shape, classes, number of training images, range and warnings."""
    counts = seen.counts
    if not counts["train"]:
        raise _nothing_readable(seen.bad, folder)
    _check_declared(seen, declared)
    # A run is made for what is trained on, whatever the second test looks like.
    shapes = [look.shape for part, _, look in seen.looks if part != SHIFTED]
    sizes = Counter(shape[1:] for shape in shapes)
    common = sorted(sizes, key=lambda size: (-sizes[size], size[0] * size[1], size))
    wide = any(look.wide for _, _, look in seen.looks)
    low, high = declared.range or ((seen.spread.low, seen.spread.high) if wide else (0.0, 255.0))
    shape = (max(shape[0] for shape in shapes), *common[0])
    moments = None
    if folder.sums:
        training = [(picture.path, look) for part, picture, look in seen.looks if part == "train"]
        moments = picture_sums.sum_files(training, shape, (low, high), wide=wide)
    return Description(
        shape=shape,
        classes=tuple(sorted(set().union(*counts.values()))),
        samples=counts["train"].total(),
        kind="image",
        warnings=(*_oddities(seen), *remark_sizes(sizes, folder), *remark(counts, folder)),
        sizes=tuple((*size, sizes[size]) for size in common[:MOST_SIZES]),
        values="wide" if wide else "bytes",
        low=low,
        high=high,
        moments=moments,
    )


def tell(bad: Iterable[BadFile], folder: DataFolder) -> None:
    """Say which files cannot be read: by their places, and on a terminal by their names."""
    for file in list(bad)[:MOST_TOLD]:
        name = {"file": show(file.path.relative_to(folder.path))}
        seen = {"site": folder.site, "position": file.position, "why": file.why, "sha256": file.digest()}
        log.warning(
            "a file is left out", **{key: word for key, word in seen.items() if word}, **{HERE_ALONE: name}
        )


def check_run(folder: DataFolder, spec: RunSpec) -> None:
    """Refuse image files for a run whose samples are no images."""
    shape = spec.model.shape
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise DataError(
            f"{folder.site} has images, the run's samples have the shape {shape}",
            expected="a run on images: (1 or 3 channels, height, width)",
            advice="check --data, or join another run",
        )


def load(found: PictureFolders, folder: DataFolder, spec: RunSpec) -> dict[str, Samples]:
    """All images in the run's size and colours, as bytes."""
    check_run(folder, spec)
    labels = {picture.label for part in found.parts.values() for picture in part}
    numbers, bad = number_classes(labels, folder, spec), list[BadFile]()
    with _rows(found.total, folder, spec) as rows:
        taken = {
            part: _read(found.parts[part], numbers, folder, spec=spec, bad=bad, rows=rows) for part in PARTS
        }
        parts = _cut(rows.finish(), taken, mapped=rows.mapped)
    tell(bad, folder)
    if bad:
        # At the start only first bytes were read: this is what takes part.
        kept = len(parts["train"])
        log.warning("files are left out", site=folder.site, number=len(bad), of=found.total, samples=kept)
    if not len(parts["train"]):
        raise _nothing_readable(bad, folder)
    return parts


def _rows(most: int, folder: DataFolder, spec: RunSpec) -> PictureRows:
    if folder.cache is None:
        return InMemory(spec.model.shape, most)
    return InCache(DiskCache(folder.cache, folder.cache_bytes), spec.model, most)


def _read(  # noqa: PLR0913  # where from, what for, and what becomes of it
    pictures: tuple[Picture, ...],
    numbers: dict[str, int],
    folder: DataFolder,
    *,
    spec: RunSpec,
    bad: list[BadFile],
    rows: PictureRows,
) -> Tensor:
    """The classes of the pictures that can be read. One is decoded at a time: what is kept has the run's size."""
    y: list[int] = []
    for picture in pictures:
        with _noting_bad(picture, folder, bad):
            rows.add(picture.path, lambda path: read_one(path, spec))
            y.append(numbers[picture.label])
    return torch.tensor(y, dtype=torch.int64)


def _cut(x: Tensor, classes: dict[str, Tensor], *, mapped: bool) -> dict[str, Samples]:
    """The parts follow each other; of a mapped file each knows its rows."""
    parts, start = {}, 0
    for part, y in classes.items():
        end = start + len(y)
        parts[part] = Samples(x, y, rows=torch.arange(start, end)) if mapped else Samples(x[start:end], y)
        start = end
    return parts


def read_one(path: Path, spec: RunSpec) -> Tensor:
    """One image as the run wants it; training, evaluation and prediction all read it here."""
    return image_decoding.read(path, spec.model.shape, Scale.of(spec.model))


@contextmanager
def _noting_bad(picture: Picture, folder: DataFolder, bad: list[BadFile]) -> Iterator[None]:
    """While open, a file that cannot be read is one more bad one, or with --strict-data an error."""
    try:
        yield
    except image_decoding.Unreadable as error:
        denied = isinstance(error, image_decoding.Denied)
        file = picture.path.relative_to(folder.path)
        if folder.strict:
            what = "may not be read" if denied else "is no image that can be read"
            raise DataError(
                f"{picture.position} {what}: {error}",
                expected="images only, because of --strict-data",
                advice="repair or remove it, or leave --strict-data out",
                file=show(file),
            ) from None
        bad.append(BadFile(picture.where, picture.place, picture.path, str(error), denied))


def _nothing_readable(bad: list[BadFile], folder: DataFolder) -> DataError:
    first = show(bad[0].path.relative_to(folder.path)) if bad else ""
    if bad and all(file.denied for file in bad):
        return DataError(
            f"none of the training files of {folder.site} may be read: Permission denied",
            expected="files that the user of this program may read",
            advice="look at ls -l, or start the program as a user who may read them",
            file=first,
        )
    why = f": {bad[0].position}: {bad[0].why}" if bad else ""
    return DataError(
        f"none of the training files of {folder.site} is an image that can be read{why}",
        expected="png, jpeg, bmp or another common format",
        advice="look at these files, or into the train folder",
        file=first,
    )


def _check_declared(seen: Inspection, declared: Declared) -> None:
    own = "wide" if any(look.wide for _, _, look in seen.looks) else "bytes"
    said = {"kind": declared.kind, "values": declared.values, "layout": declared.layout}
    for name, right in (("kind", "image"), ("values", own), ("layout", None)):
        if said[name] not in (None, right):
            raise DataError(
                f"data.json says {said[name]!r} for {name!r}, and the folder holds image files",
                expected=f"{right!r}, or nothing said of it"
                if right
                else "nothing said of it: image files say it",
                advice=f"remove {name!r} from data.json",
            )


def _oddities(seen: Inspection) -> list[str]:
    warnings = []
    if seen.found.divided:
        warnings.append(
            "no train and test folders: a quarter of each class is kept for testing, always the same files"
        )
    if seen.found.empty:
        warnings.append(f"class folders without a file: {enumerate_names(seen.found.empty)}")
    total = seen.found.total
    for denied, what in (
        (True, "may not be read (Permission denied)"),
        (False, "are no images that can be read"),
    ):
        if bad := [file for file in seen.bad if file.denied is denied]:
            places = "; ".join(file.position for file in bad[:5]) + ("; ..." if len(bad) > 5 else "")
            warnings.append(f"{len(bad)} of {total} files {what} and are left out: {places}")
    return warnings + _depths(seen)


def _depths(seen: Inspection) -> list[str]:
    """The bits of a pixel, where they are not simply 8."""
    warnings = []
    wide = sum(look.wide for _, _, look in seen.looks)
    if wide and wide < len(seen.looks):
        warnings.append(
            f"{wide} pictures have 16 bits and {len(seen.looks) - wide} have 8: each kind by its own full scale"
        )
    if cut := [picture for _, picture, look in seen.looks if look.cut]:
        warnings.append(
            f"{len(cut)} pictures have 16 bits a colour, of which the upper 8 are read, such as {cut[0].position}"
        )
    return [*warnings, *seen.spread.remarks()]
