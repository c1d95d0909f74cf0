"""Writes one folder per site (`site_00` and so on) from a data set and a partition of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pfl_common.errors import DataError
from pfl_deploy.datasets.labelled import ClientData, Form, Indices, Source
from pfl_deploy.datasets.partitions import Share
from pfl_deploy.datasets.write_site import write_folder


def write_split(
    source: Source,
    shares: Sequence[Share],
    out: Path,
    *,
    form: Form = "npz",
    origin: Mapping[str, object] | None = None,
) -> list[Path]:
    """Write every site's share and give the folders back; all shares are checked before one is written."""
    pool, width = source.pooled(), max(2, len(str(len(shares) - 1)))
    for number, share in enumerate(shares):
        _check_share(number, share, len(pool))
    paths = []
    for number, share in enumerate(shares):
        notes = {
            "source": source.name,
            "licence": source.licence,
            "site": number,
            "sites": len(shares),
            **(origin or {}),
        }
        validation = None if share.validation is None else pool.take(share.validation)
        data = ClientData(source.classes, pool.take(share.train), pool.take(share.test), validation, notes)
        paths.append(write_folder(out / f"site_{number:0{width}d}", data, form=form))
    return paths


def _check_share(number: int, share: Share, size: int) -> None:
    parts = {"train": share.train, "validation": share.validation, "test": share.test}
    named: dict[str, Indices] = {name: part for name, part in parts.items() if part is not None}
    for name, part in named.items():
        if len(part) and not (part.min() >= 0 and part.max() < size):
            raise DataError(f"site {number}: {name} names an example beyond the {size} there are")
        if name != "validation" and not len(part):
            raise DataError(
                f"site {number} has no {name} examples", advice="choose fewer sites or a larger data set"
            )
    for first, second in (("train", "test"), ("validation", "test"), ("train", "validation")):
        if {first, second} <= named.keys() and len(np.intersect1d(named[first], named[second])):
            raise DataError(
                f"site {number}: {first} and {second} share examples", expected="no example in both"
            )
