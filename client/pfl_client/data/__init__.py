"""A site's data folder: what is in it, and its samples as the run wants them. Nothing here leaves the site.

Convention for errors and warnings: `seen` and every warning may reach a log file, so they name a file by its
position; the file's name stands in `advice`, which only the site's own terminal shows.
"""

from __future__ import annotations

from dataclasses import replace

from pfl_client.bench import DataFolder
from pfl_client.data import arrays, pictures
from pfl_client.data.fingerprint import fingerprint
from pfl_client.data.hold_out import hold_out
from pfl_client.data.layout import ArrayFiles, find
from pfl_common.halves import LocalData, Samples
from pfl_common.run import Description, RunSpec


def describe(folder: DataFolder) -> Description:
    """Look at the data folder: shape, class names, counts, and what is odd about it."""
    found = find(folder)
    read = (
        arrays.describe(found, folder) if isinstance(found, ArrayFiles) else pictures.describe(found, folder)
    )
    return replace(read, data=fingerprint(found.files, below=folder.path))


def fingerprint_of(folder: DataFolder) -> str:
    """What `describe` says of the data in a few signs, without reading samples."""
    return fingerprint(find(folder).files, below=folder.path)


def load(folder: DataFolder, spec: RunSpec) -> LocalData:
    """Read the samples in the run's shape and with the run's class numbers; refuse what does not fit."""
    found = find(folder)
    if isinstance(found, ArrayFiles):
        return _local(arrays.load(found, folder, spec), folder, spec)
    return _local(pictures.load(found, folder, spec), folder, spec)


def _local(parts: dict[str, Samples], folder: DataFolder, spec: RunSpec) -> LocalData:
    classes = spec.model.classes
    held = hold_out(parts, folder.hold_out, site=folder.site, classes=classes)
    return LocalData(**held, classes=len(classes), site=folder.site, seed=spec.seed)
