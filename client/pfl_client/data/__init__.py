"""A site's data folder and its samples, in the form the run wants. Nothing here leaves the site.

Convention for errors and warnings: `seen`, `advice` and every warning may reach a log file, so they name a file by its
position; its name stands in `file`, which only the site's own terminal shows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import structlog
import torch

from pfl_client.data import arrays, images, vocabulary
from pfl_client.data.array_rows import ArrayRows
from pfl_client.data.declaration import FILE, Declared, read_declared
from pfl_client.data.findings import BadFile, Findings, recognise
from pfl_client.data.fingerprint import fingerprint
from pfl_client.data.hold_out import hold_out
from pfl_client.data.layout import ArrayFiles, PictureFolders, find
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError, Refused
from pfl_common.learning.augmentation import Augmentation
from pfl_common.learning.method import LocalData, Samples
from pfl_common.learning.pixels import Pixels
from pfl_common.spec import data_description
from pfl_common.spec.run import Description, RunSpec

log = structlog.get_logger(__name__)

TESTS = frozenset({"test", "shifted"})
"""Parts that a result is told of, and nothing is chosen by."""

__all__ = ["BadFile", "Findings", "describe", "load", "look_through", "recognise"]


def describe(folder: DataFolder) -> Description:
    """Look at the data folder: shape, class names, counts, how numbers are stored, and what is odd about it.

    Of a picture only the first bytes are read, so that a site begins soon: one that is cut short counts here, and is
    left out, and named, when the samples are read.
    """
    found, declared = find(folder), read_declared(folder.path)
    if isinstance(found, ArrayFiles):
        stored = arrays.read(found, declared, ArrayRows(folder))
        if stored.vocabulary is not None:
            log.info("data", site=folder.site, told_of_words=vocabulary.tell(stored.vocabulary))
        if stored.columns:
            log.info("data", site=folder.site, told_of_columns=f"the names of {len(stored.columns)} columns")
        read = arrays.describe(stored, found, folder)
    else:
        seen = images.inspect(found, folder)
        images.tell(seen.bad, folder)
        read = images.conclude(seen, folder, declared)
    _check(read)
    log.info(
        "data", site=folder.site, recognised=recognise(read), samples=read.samples, classes=len(read.classes)
    )
    return replace(read, data=_fingerprint(found, folder))


def _check(read: Description) -> None:
    """Refuse here, before any call, a description that the coordinator would refuse."""
    try:
        data_description.check(read)
    except Refused as refused:
        seen, _, expected = refused.words.partition("; expected: ")
        advice = f'check --data; where {FILE} says a "range", "values" or "vocabulary", check those'
        raise DataError(seen, expected=expected, advice=advice) from None


def fingerprint_of(folder: DataFolder) -> str:
    """A short digest of the description that `describe` gives, made without reading samples."""
    return _fingerprint(find(folder), folder)


def _fingerprint(found: ArrayFiles | PictureFolders, folder: DataFolder) -> str:
    said = folder.path / FILE
    return fingerprint([*found.files, *([said] if said.is_file() else [])], below=folder.path)


def load(folder: DataFolder, spec: RunSpec) -> LocalData:
    """Read the samples in the run's shape and with the run's class numbers; refuse what does not fit."""
    found = find(folder)
    if isinstance(found, ArrayFiles):
        rows = ArrayRows(folder)
        parts = arrays.load(arrays.read(found, read_declared(folder.path), rows), folder, spec, rows)
        rows.drop_others()
        return _local(parts, folder, spec)
    return _local(images.load(found, folder, spec), folder, spec)


def look_through(path: Path, *, site: str = "") -> Findings:
    """Everything there is to know of a data folder before a site begins, for its owner's terminal: it names files.

    Each picture is decoded, one at a time: this takes as long as reading them for training.
    """
    folder = DataFolder(path, site or path.name)
    try:
        found, declared = find(folder), read_declared(path)
        if isinstance(found, ArrayFiles):
            return _look_at_arrays(found, folder, declared)
        return _look_at_pictures(found, folder, declared)
    except DataError as error:
        return Findings("nothing that can be used", error=error)


def _look_at_arrays(found: ArrayFiles, folder: DataFolder, declared: Declared) -> Findings:
    read = arrays.read(found, declared, ArrayRows(folder))
    said = arrays.describe(read, found, folder)
    _check(said)
    names = ", ".join(path.name for path in found.files)
    return Findings(f"arrays in {names}", said, read.counts, warnings=said.warnings)


def _look_at_pictures(found: PictureFolders, folder: DataFolder, declared: Declared) -> Findings:
    seen = images.inspect(found, folder, whole=True)
    layout = "images in one folder per class, divided by this program" if found.divided else "images in parts"
    whole = Findings(layout, None, seen.counts, tuple(seen.bad))
    try:
        said = images.conclude(seen, folder, declared)
        _check(said)
    except DataError as error:
        return replace(whole, error=error)
    return replace(whole, description=said, warnings=said.warnings)


def _local(parts: dict[str, Samples], folder: DataFolder, spec: RunSpec) -> LocalData:
    classes = spec.model.classes
    share = spec.validation if folder.validation is None else folder.validation
    held = hold_out(parts, folder.hold_out, site=folder.site, classes=classes)
    held = hold_out(held, share, site=folder.site, classes=classes, spare_small=True)
    _tell_validation(held, folder, spec)
    if folder.blind:
        nothing = torch.empty(0, dtype=torch.int64)
        held |= {part: held[part].only(nothing) for part in held.keys() & TESTS}
    pixels = Pixels.of(spec.model)
    scaled = {part: replace(samples, pixels=pixels) for part, samples in held.items()}
    augmentation = Augmentation(spec.augment, pixels) if spec.augment else None
    return LocalData(
        scaled["train"],
        scaled["validation"],
        scaled["test"],
        len(classes),
        folder.site,
        spec.seed,
        shifted=scaled["shifted"],
        augmentation=augmentation,
    )


def _tell_validation(parts: dict[str, Samples], folder: DataFolder, spec: RunSpec) -> None:
    """Say what there is to validate on, and where a best round cannot be told."""
    count = len(parts["validation"])
    if count:
        log.info("data", site=folder.site, to_train_on=len(parts["train"]), to_validate_on=count)
    elif spec.keep == "best":
        log.warning(
            "no validation part: the best round cannot be told here, the last model alone is kept",
            site=folder.site,
            what_to_do="add a validation part, or hold more samples back with --validation",
        )
