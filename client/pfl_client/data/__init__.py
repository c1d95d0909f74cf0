"""A site's data folder and its samples, in the form the run wants. Nothing here leaves the site.

Convention for errors and warnings: `seen`, `advice` and every warning may reach a log file, so they name a file by its
position; its name stands in `file`, which only the site's own terminal shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog
import torch

from pfl_client.data import arrays, bad_files, images, leakage, recordings, row_folder, vocabulary
from pfl_client.data.array_rows import ArrayRows
from pfl_client.data.arrays import Arrays
from pfl_client.data.declaration import FILE, OF_RECORDINGS, OF_ROWS, Declared, read_declared
from pfl_client.data.findings import BadFile, Findings, recognise
from pfl_client.data.fingerprint import combine, digest_files, fingerprint
from pfl_client.data.hold_out import hold_out
from pfl_client.data.layout import ArrayFiles, Found, PictureFolders, find
from pfl_client.data.recordings import Recordings, are_recordings
from pfl_client.data.row_files import RowFiles
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
    if isinstance(found, RowFiles):
        rows = row_folder.read(found, declared, folder)
        read = rows.describe()
        log.info("data", site=folder.site, **rows.tell(read))
    elif isinstance(found, ArrayFiles):
        read = _describe_arrays(_read_arrays(found, declared, ArrayRows(folder)), found, folder)
    elif are_recordings(found, declared):
        read = _describe_recordings(found, recordings.read(found, declared, folder), folder)
    else:
        declared.check_read(words=(*OF_ROWS, *OF_RECORDINGS), what="pictures")
        seen = images.inspect(found, folder)
        bad_files.tell(seen.bad, folder)
        read = images.conclude(seen, folder, declared)
    digests = digest_files(_list_files(found, folder))
    if isinstance(found, PictureFolders):
        read = _add_warnings(read, leakage.warn_of_equal_files(found.parts, digests))
    _check(read)
    log.info(
        "data", site=folder.site, recognised=recognise(read), samples=read.samples, classes=len(read.classes)
    )
    return replace(read, data=combine(digests, below=folder.path))


def _add_warnings(read: Description, warnings: Sequence[str]) -> Description:
    return replace(read, warnings=(*read.warnings, *warnings))


def _describe_arrays(stored: Arrays, found: ArrayFiles, folder: DataFolder) -> Description:
    if stored.vocabulary is not None:
        log.info("data", site=folder.site, told_of_words=vocabulary.tell(stored.vocabulary))
    _tell_names(stored, folder)
    return arrays.describe(stored, folder, listed=found.classes is not None)


def _tell_names(stored: Arrays, folder: DataFolder) -> None:
    if stored.columns:
        log.info("data", site=folder.site, told_of_columns=f"the names of {len(stored.columns)} columns")


def _read_arrays(found: ArrayFiles, declared: Declared, rows: ArrayRows) -> Arrays:
    declared.check_read(words=(*OF_ROWS, *OF_RECORDINGS), what="arrays")
    return arrays.read(found, declared, rows)


def _describe_recordings(found: PictureFolders, seen: Recordings, folder: DataFolder) -> Description:
    bad_files.tell(seen.bad, folder)
    _tell_names(seen.arrays, folder)
    said = arrays.describe(seen.arrays, folder, listed=False)
    return replace(said, warnings=(*recordings.oddities(found, seen.bad), *said.warnings))


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
    return fingerprint(_list_files(find(folder), folder), below=folder.path)


def _list_files(found: Found, folder: DataFolder) -> list[Path]:
    said = folder.path / FILE
    return [*found.files, *([said] if said.is_file() else [])]


def load(folder: DataFolder, spec: RunSpec) -> LocalData:
    """Read the samples in the run's shape and with the run's class numbers; refuse what does not fit."""
    found, declared = find(folder), read_declared(folder.path)
    if isinstance(found, RowFiles):
        read = row_folder.read(found, declared, folder)
        return _local(read.load(spec), folder, spec, groups=read.rows.groups("train"))
    if isinstance(found, ArrayFiles):
        rows = ArrayRows(folder)
        parts = arrays.load(_read_arrays(found, declared, rows), folder, spec, rows)
        rows.drop_others()
        return _local(parts, folder, spec)
    if are_recordings(found, declared):
        seen = recordings.read(found, declared, folder)
        parts = arrays.load(seen.arrays, folder, spec, ArrayRows(folder))
        return _local(parts, folder, spec, groups=seen.groups)
    parts, groups = images.load(found, folder, spec, declared=declared)
    local = _local(parts, folder, spec, groups=groups)
    # Files to predict lie elsewhere, without this data.json.
    window = declared.dicom_window
    return replace(local, about={"dicom_window": list(window)}) if window else local


def look_through(path: Path, *, site: str = "") -> Findings:
    """Everything there is to know of a data folder before a site begins, for its owner's terminal: it names files.

    Each picture is decoded, one at a time: this takes as long as reading them for training.
    """
    folder = DataFolder(path, site or path.name)
    try:
        found, declared = find(folder), read_declared(path)
        if isinstance(found, RowFiles):
            return _look_at_rows(found, folder, declared)
        if isinstance(found, ArrayFiles):
            return _look_at_arrays(found, folder, declared)
        if are_recordings(found, declared):
            return _look_at_recordings(found, folder, declared)
        return _look_at_pictures(found, folder, declared)
    except DataError as error:
        return Findings("nothing that can be used", error=error)


def _look_at_arrays(found: ArrayFiles, folder: DataFolder, declared: Declared) -> Findings:
    read = _read_arrays(found, declared, ArrayRows(folder))
    said = arrays.describe(read, folder, listed=found.classes is not None)
    _check(said)
    names = ", ".join(path.name for path in found.files)
    return Findings(f"arrays in {names}", said, read.counts, warnings=said.warnings)


def _look_at_rows(found: RowFiles, folder: DataFolder, declared: Declared) -> Findings:
    read = row_folder.read(found, declared, folder)
    said = read.describe()
    _check(said)
    told = "; ".join(read.tell(said).values())
    return Findings(read.layout, said, read.rows.counts, warnings=said.warnings, told=told)


def _look_at_recordings(found: PictureFolders, folder: DataFolder, declared: Declared) -> Findings:
    seen = recordings.read(found, declared, folder)
    said = _describe_recordings(found, seen, folder)
    _check(said)
    layout = (
        "recordings in one folder per class, divided by this program"
        if found.divided
        else "recordings in parts"
    )
    return Findings(layout, said, seen.arrays.counts, tuple(seen.bad), said.warnings)


def _look_at_pictures(found: PictureFolders, folder: DataFolder, declared: Declared) -> Findings:
    # Beyond the share that a site allows, its owner wants to know the rest all the same.
    lenient = replace(folder, most_bad=1.0)
    seen = images.inspect(found, lenient, whole=True)
    whole = Findings(_tell_layout(found), None, seen.counts, tuple(seen.bad))
    try:
        said = images.conclude(seen, lenient, declared)
        said = _add_warnings(said, leakage.warn_of_equal_files(found.parts, digest_files(found.files)))
        _check(said)
        whole = replace(whole, description=said, warnings=said.warnings)
        bad_files.check_share(seen.bad, found.total, folder)
    except DataError as error:
        return replace(whole, error=error)
    return whole


def _tell_layout(found: PictureFolders) -> str:
    where = ", ".join(path.name for path in found.lists)
    pictures = f"images listed in {where}" if where else "images in parts"
    if found.divided:
        pictures = f"{pictures if where else 'images in one folder per class'}, divided by this program"
    groups = {one.group for part in found.parts.values() for one in part if one.group}
    return f"{pictures}, of {len(groups)} groups that stay together" if groups else pictures


def _local(
    parts: dict[str, Samples], folder: DataFolder, spec: RunSpec, *, groups: Sequence[str] = ()
) -> LocalData:
    classes = spec.model.classes
    share = spec.validation if folder.validation is None else folder.validation
    held = hold_out(parts, folder.hold_out, site=folder.site, classes=classes, groups=groups)
    held = hold_out(held, share, site=folder.site, classes=classes, groups=groups, spare_small=True)
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
