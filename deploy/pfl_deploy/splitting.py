"""`pfl split`: client folders from a data set, by domain or by a label partition."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pfl_common.errors import SettingError, nearest
from pfl_deploy.datasets import partitions, sources, splits
from pfl_deploy.datasets.domains import SIX, Workshop
from pfl_deploy.datasets.labelled import Source
from pfl_deploy.datasets.partitions import Draws, Share

SOURCES: dict[str, Callable[[sources.Stock], Source]] = {
    "mnist": sources.mnist,
    "fashion": sources.fashion,
    "cifar10": sources.cifar10,
    "optdigits": lambda stock: sources.optdigits(),
}
PARTITIONS = ("iid", "pathological", "dirichlet", "fixed-dirichlet", "two-classes")
OF_TWO_PARTS = ("fixed-dirichlet", "two-classes")
"""These need the data set's own test part."""


@dataclass(frozen=True)
class Plan:
    """How a data set is cut."""

    partition: str = "dirichlet"
    sites: int = 10
    seed: int = 0
    beta: float = 0.1
    classes_per_site: int = 2
    validation: float = 0.0


def check_out(out: Path) -> None:
    """Whether folders can be made there, before a data set is fetched and cut for it."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise SettingError(
            f"--out {out}: {there} is a file", expected="a folder", advice="choose another --out"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise SettingError(
            f"--out {out}: this user may not write to {there}",
            expected="a folder in which new ones can be made",
            advice="choose another --out",
        )


def split_domains(
    out: Path, workshop: Workshop, *, names: Sequence[str], form: Literal["npz", "images"]
) -> list[Path]:
    """The digit domains, one folder each."""
    for name in names:
        if name not in SIX:
            raise SettingError(f"there is no digit domain {name!r}", expected=nearest(name, SIX))
    return workshop.write(out, names=names, form=form)


def open_stock(cache: Path | None) -> sources.Stock:
    """Where fetched archives are kept."""
    return sources.Stock(cache) if cache else sources.Stock()


def split_source(
    out: Path, dataset: str, plan: Plan, *, form: Literal["npz", "images"], cache: Path | None
) -> list[Path]:
    """A labelled data set, cut among sites."""
    if dataset not in SOURCES:
        raise SettingError(
            f"there is no data set {dataset!r}", expected=nearest(dataset, [*SOURCES, "digits"])
        )
    source = SOURCES[dataset](open_stock(cache))
    shares = _shares(source, plan)
    if plan.validation:
        shares = partitions.with_validation(shares, fraction=plan.validation, seed=plan.seed)
    origin = {"partition": plan.partition, "seed": plan.seed, "beta": plan.beta}
    return splits.write_split(source, shares, out, form=form, origin=origin)


def _shares(source: Source, plan: Plan) -> list[Share]:
    labels, seed, clients = source.pooled().y, plan.seed, plan.sites
    both = (source.train.y, source.test.y)
    if plan.partition in OF_TWO_PARTS and not len(source.test):
        raise SettingError(
            f"{plan.partition} draws training and test examples apart, {source.name} has no test part",
            expected="a data set that its authors cut in two, such as mnist",
            advice="choose another --partition: " + ", ".join(p for p in PARTITIONS if p not in OF_TWO_PARTS),
        )
    match plan.partition:
        case "iid":
            parts = partitions.iid(labels, clients=clients, seed=seed)
        case "pathological":
            parts = partitions.pathological(
                labels, clients=clients, per_client=plan.classes_per_site, seed=seed
            )
        case "dirichlet":
            parts = partitions.practical_dirichlet(labels, clients=clients, beta=plan.beta, seed=seed)
        case "fixed-dirichlet":
            return partitions.fixed_dirichlet(
                both, clients=clients, alpha=plan.beta, seed=seed, sizes=Draws(500, 100)
            )
        case "two-classes":
            return partitions.two_classes(both, clients=clients, seed=seed, sizes=Draws(500, 100))
        case other:
            raise SettingError(f"there is no partition {other!r}", expected=nearest(other, PARTITIONS))
    return partitions.hold_out(parts, seed=seed)
