"""Folders of images: reads each file's head to describe them, and each file once to train on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog
import torch
from torch import Tensor

from pfl_client.data import bad_files, image_decoding, leakage, picture_sums
from pfl_client.data.bad_files import noting_bad
from pfl_client.data.declaration import Declared
from pfl_client.data.dicom import Window
from pfl_client.data.disk_cache import DiskCache
from pfl_client.data.findings import BadFile
from pfl_client.data.image_decoding import Look, Target
from pfl_client.data.layout import PARTS, SHIFTED, PictureFolders
from pfl_client.data.picture import Picture
from pfl_client.data.picture_rows import InCache, InMemory, PictureRows
from pfl_client.data.scaling import Scale
from pfl_client.data.value_spread import Spread
from pfl_client.data.warnings import enumerate_names, number_classes, remark, remark_sizes
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.learning.method import Samples
from pfl_common.spec.data_description import MOST_SIZES
from pfl_common.spec.run import Description, RunSpec

log = structlog.get_logger(__name__)


@dataclass
class Inspection:
    """The result of looking at each file of the folder."""

    found: PictureFolders
    looks: list[tuple[str, Picture, Look]] = field(default_factory=list)
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
            with noting_bad(picture, folder, seen.bad):
                look = image_decoding.look(picture.path)
                if whole:
                    image_decoding.decode(picture.path, look)
                seen.looks.append((part, picture, look))
    wide = [(part, picture) for part, picture, look in seen.looks if look.wide]
    # Black and white are learned from the training part alone, as everything is; from the others if it has none.
    for _, picture in [one for one in wide if one[0] == "train"] or wide:
        with noting_bad(picture, folder, seen.bad):
            seen.spread.add(image_decoding.read_wide(picture.path), picture.position)
    places = {file.path for file in seen.bad}
    seen.looks = [one for one in seen.looks if one[1].path not in places]
    return seen


def conclude(seen: Inspection, folder: DataFolder, declared: Declared) -> Description:
    """Shape, classes, number of training images, range and warnings."""
    counts = seen.counts
    if not counts["train"]:
        raise bad_files.nothing_readable(seen.bad, folder)
    bad_files.check_share(seen.bad, seen.found.total, folder)
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
        moments = picture_sums.sum_files(training, shape, (low, high), wide=wide, window=_window(declared))
    return Description(
        shape=shape,
        classes=tuple(sorted(set().union(*counts.values()))),
        samples=counts["train"].total(),
        kind="image",
        warnings=(*_oddities(seen, declared), *remark_sizes(sizes, folder), *remark(counts, folder)),
        sizes=tuple((*size, sizes[size]) for size in common[:MOST_SIZES]),
        values="wide" if wide else "bytes",
        low=low,
        high=high,
        moments=moments,
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


def load(
    found: PictureFolders, folder: DataFolder, spec: RunSpec, *, declared: Declared
) -> tuple[dict[str, Samples], tuple[str, ...]]:
    """All images in the run's size and colours, as bytes; and the groups of the training part, if there are any."""
    check_run(folder, spec)
    labels = _list_classes(found, folder, known=frozenset(spec.model.classes))
    numbers, bad = number_classes(labels, folder, spec), list[BadFile]()
    target = target_of(spec, declared)
    with _rows(found.total, folder, spec, target) as rows:
        read = {part: _read(found.parts[part], folder, target=target, bad=bad, rows=rows) for part in PARTS}
        classes = {
            part: torch.tensor([numbers[one.label] for one in own], dtype=torch.int64)
            for part, own in read.items()
        }
        parts = _cut(rows.finish(), classes, mapped=rows.mapped)
    bad_files.tell(bad, folder)
    if bad:
        # At the start only first bytes were read: this is what takes part.
        kept = len(read["train"])
        log.warning("files are left out", site=folder.site, number=len(bad), of=found.total, samples=kept)
    if not read["train"]:
        raise bad_files.nothing_readable(bad, folder)
    bad_files.check_share(bad, found.total, folder)
    return parts, tuple(one.unit for one in read["train"]) if found.grouped else ()


def _list_classes(found: PictureFolders, folder: DataFolder, *, known: frozenset[str]) -> set[str]:
    """The classes of a folder, as the site described it: one whose files are all unreadable is none. Only those that
    the run does not know are looked into.
    """
    of_run = {one.label for part in found.parts.values() for one in part if one.label in known}
    others = {part: tuple(one for one in own if one.label not in known) for part, own in found.parts.items()}
    lenient = replace(folder, strict=False)
    counts = inspect(replace(found, parts=others), lenient).counts if any(others.values()) else {}
    return of_run.union(*counts.values())


def _rows(most: int, folder: DataFolder, spec: RunSpec, target: Target) -> PictureRows:
    if folder.cache is None:
        return InMemory(spec.model.shape, most)
    return InCache(DiskCache(folder.cache, folder.cache_bytes), spec.model, most, window=target.window)


def _read(
    pictures: Sequence[Picture], folder: DataFolder, *, target: Target, bad: list[BadFile], rows: PictureRows
) -> list[Picture]:
    """The pictures that can be read. One is decoded at a time: what is kept has the run's size."""
    read: list[Picture] = []
    for picture in pictures:
        with noting_bad(picture, folder, bad):
            rows.add(picture.path, partial(image_decoding.read, target=target))
            read.append(picture)
    return read


def _cut(x: Tensor, classes: dict[str, Tensor], *, mapped: bool) -> dict[str, Samples]:
    """The parts follow each other; of a mapped file each knows its rows."""
    parts, start = {}, 0
    for part, y in classes.items():
        end = start + len(y)
        parts[part] = Samples(x, y, rows=torch.arange(start, end)) if mapped else Samples(x[start:end], y)
        start = end
    return parts


def target_of(spec: RunSpec, declared: Declared) -> Target:
    """How this site's pictures become samples of a run; training, evaluation and prediction all ask here."""
    return Target(spec.model.shape, Scale.of(spec.model), _window(declared))


def _window(declared: Declared) -> Window | None:
    return Window(*declared.dicom_window) if declared.dicom_window else None


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


def _oddities(seen: Inspection, declared: Declared) -> list[str]:
    warnings = []
    if seen.found.divided:
        what = "the groups" if seen.found.grouped else "each class"
        warnings.append(
            f"no train and test parts: a quarter of {what} is kept for testing, always the same files"
        )
    if seen.found.empty:
        warnings.append(f"class folders without a file: {enumerate_names(seen.found.empty)}")
    total = seen.found.total
    for denied, what in (
        (True, "may not be read (Permission denied)"),
        (False, "are no images that can be read"),
    ):
        if bad := [file for file in seen.bad if file.denied is denied]:
            places = bad_files.name_places(bad)
            warnings.append(f"{len(bad)} of {total} files {what} and are left out: {places}")
    if not seen.found.divided:
        warnings += leakage.warn_of_groups(seen.found.parts)
    return [*warnings, *_partly_read(seen, declared), *_depths(seen)]


def _partly_read(seen: Inspection, declared: Declared) -> list[str]:
    """Files of which less is taken, or more is guessed, than their owner may think."""
    warnings = []
    if several := [picture for _, picture, look in seen.looks if look.several]:
        warnings.append(
            f"{len(several)} files hold more than one picture (pages, frames), of which the first is read, such as "
            f"{several[0].position}"
        )
    guessed = [picture for _, picture, look in seen.looks if look.windowless]
    if guessed and declared.dicom_window is None:
        warnings.append(
            f"{len(guessed)} DICOM files say no window, such as {guessed[0].position}: each one's smallest value "
            'becomes black and its largest white; {"dicom_window": [centre, width]} in data.json sets it for all'
        )
    return warnings


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
