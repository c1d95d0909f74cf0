"""Oddities in a site's data that are warnings, or errors with `--strict-data`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError, nearest
from pfl_common.spec.run import RunSpec

SHOWN = 5
UNEVEN = 10
"""A class so many times as large as another is told of: who never says the small one is right nearly always."""


def remark(counts: Mapping[str, Counter[str]], folder: DataFolder) -> list[str]:
    """Warnings from the number of samples per part and class."""
    train, test = counts["train"], counts["test"]
    warnings = []
    if len(train) == 1:
        only = next(iter(train))
        if folder.strict:
            raise DataError(
                f"{folder.site} has training samples of the class {only!r} alone",
                expected="two classes or more, because of --strict-data",
                advice="add samples of other classes, or leave --strict-data out",
            )
        warnings.append(
            f"only one class here, {only!r}: the site can learn to tell classes apart from others only"
        )
    warnings += _remark_uneven(train)
    if not test:
        warnings.append("no test samples: this site's accuracy will not be measured")
    elif without := sorted(train.keys() - test.keys()):
        warnings.append(f"no test samples of {enumerate_names(without)}")
    if unseen := sorted(
        (test.keys() | counts["validation"].keys() | counts["shifted"].keys()) - train.keys()
    ):
        warnings.append(f"no training samples of {enumerate_names(unseen)}")
    return warnings


def _remark_uneven(train: Counter[str]) -> list[str]:
    order = train.most_common()
    if len(order) < 2 or order[0][1] < UNEVEN * order[-1][1]:
        return []
    (large, most), (small, least) = order[0], order[-1]
    return [
        f"the classes are of very different size: {large!r} has {most / least:.0f} times the training samples of "
        f"{small!r}; look at macro-F1 (`pfl evaluate`) beside the accuracy"
    ]


def remark_sizes(sizes: Counter[tuple[int, int]], folder: DataFolder) -> list[str]:
    """A warning where images have more than one size."""
    if len(sizes) < 2:
        return []
    common = ", ".join(f"{high}x{wide} ({count} images)" for (high, wide), count in sizes.most_common(3))
    if folder.strict:
        raise DataError(
            f"the images of {folder.site} have {len(sizes)} different sizes: {common}",
            expected="images of one size, because of --strict-data",
            advice="bring them to one size, or leave --strict-data out to have them resized",
        )
    return [f"images of {len(sizes)} different sizes are resized to the run's: {common}"]


def number_classes(own: Iterable[str], folder: DataFolder, spec: RunSpec) -> dict[str, int]:
    """The run's number of each class. Agreed by name: a class that a site lacks shifts no other."""
    numbers = {name: place for place, name in enumerate(spec.model.classes)}
    unknown = sorted(set(own) - numbers.keys())
    if unknown:
        raise DataError(
            f"{folder.site} has class {unknown[0]!r} the run does not know"
            + (f", and {len(unknown) - 1} more of that kind" if len(unknown) > 1 else ""),
            expected=f"classes of the run: {enumerate_names(spec.model.classes)}",
            advice=f"rename or remove it ({nearest(unknown[0], numbers)}), or have a new run started with it",
        )
    return numbers


def enumerate_names(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    every = list(names)
    shown = ", ".join(repr(name) for name in every[:SHOWN])
    return shown if len(every) <= SHOWN else f"{shown} and {len(every) - SHOWN} more"
