"""`pfl split`: site folders from a data set, by domain or by a label partition."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # a command's words are of any type until they are settled

from pfl_common.errors import SettingError, nearest
from pfl_deploy.datasets import partitions, sources, write_sites
from pfl_deploy.datasets.domains import SHIFTED, SIX, Sizes, Workshop
from pfl_deploy.datasets.labelled import Form, Source
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
OF_DIGITS = {"train": "train", "validation_images": "validation", "test": "test", "shifted": "shifted"}
"""Words of the digit domains alone, by the field of Sizes they fill; `domains` is one more."""
OF_LABELLED = ("partition", "sites", "beta", "classes_per_site", "validation", "images")
"""Words of all other data sets: the fields of Plan."""
OF_PARTITIONS = {"beta": ("dirichlet", "fixed-dirichlet"), "classes_per_site": ("pathological",)}
"""Words that only some partitions heed."""
FETCHED_SETS, FETCHED_DOMAINS = ("mnist", "cifar10"), ("mnist", "mnist_m")
"""What comes from elsewhere, among data sets and among the digit domains."""


@dataclass(frozen=True)
class Plan:
    """A division of a data set into site folders."""

    partition: str = "dirichlet"
    sites: int = 10
    seed: int = 0
    beta: float = 0.1
    classes_per_site: int = 2
    validation: float = 0.0
    images: int = 0
    """Take so many of the data set's examples, each class as often as before beside the others; 0: all."""

    def __post_init__(self) -> None:
        if self.partition not in PARTITIONS:
            raise SettingError(
                f"there is no partition {self.partition!r}", expected=nearest(self.partition, PARTITIONS)
            )
        _check(self.sites >= 1, f"--sites is {self.sites}", "1 or more")
        _check(self.beta > 0 and math.isfinite(self.beta), f"--beta is {self.beta}", "a number above 0")
        _check(self.classes_per_site >= 1, f"--classes-per-site is {self.classes_per_site}", "1 or more")
        _check(self.images >= 0, f"--images is {self.images}", "1 or more; leave it out for all")
        _check(0 <= self.validation < 1, f"--validation is {self.validation}", "0 or more, less than 1")

    def describe(self) -> dict[str, object]:
        """The description stored with every site's data; options that this partition ignores are left out."""
        heeded = {
            name: getattr(self, name) for name, those in OF_PARTITIONS.items() if self.partition in those
        }
        held_back = {"validation": self.validation} if self.validation else {}
        taken = {"images": self.images} if self.images else {}
        return {"partition": self.partition, "seed": self.seed, **heeded, **held_back, **taken}


def split(words: Mapping[str, Any]) -> list[Path]:
    """Make the folders that a command asks for: its words by the names of its options, without those left out."""
    dataset, out, form = words["dataset"], words["out"], _read_form(words["form"])
    if dataset not in (*SOURCES, "digits"):
        raise SettingError(
            f"there is no data set {dataset!r}", expected=nearest(dataset, [*SOURCES, "digits"])
        )
    _check_belonging(words)
    check_out(out)
    return split_digits(out, words, form) if dataset == "digits" else split_source(out, words, form)


def split_digits(out: Path, words: Mapping[str, Any], form: Form) -> list[Path]:
    """The digit domains, one folder each."""
    names = _read_domains(words.get("domains"))
    drawn = [name for name in names if name in SHIFTED]
    _check(
        "shifted" not in words or bool(drawn),
        f"--shifted says nothing to {', '.join(names)}",
        f"one of {', '.join(SHIFTED)} among --domains: only these have a shifted test",
        "leave it out",
    )
    _check_cache(words, names, FETCHED_DOMAINS)
    sizes = Sizes(**{field: words[word] for word, field in OF_DIGITS.items() if word in words})
    workshop = Workshop(words["seed"], sizes, _open_stock(words.get("cache")))
    return workshop.write(out, names=names, form=form)


def split_source(out: Path, words: Mapping[str, Any], form: Form) -> list[Path]:
    """A labelled data set, cut among sites."""
    plan = Plan(seed=words["seed"], **{name: words[name] for name in OF_LABELLED if name in words})
    _check_heeded(words, plan)
    _check_cache(words, [words["dataset"]], FETCHED_SETS)
    source = SOURCES[words["dataset"]](_open_stock(words.get("cache")))
    if plan.images:
        source = partitions.take_some(source, plan.images, seed=plan.seed)
    shares = _shares(source, plan)
    if plan.validation:
        shares = partitions.with_validation(shares, fraction=plan.validation, seed=plan.seed)
    return write_sites.write_split(source, shares, out, form=form, origin=plan.describe())


def _check_belonging(words: Mapping[str, Any]) -> None:
    """A word of the other kind of data set would be ignored."""
    digits, labelled = ("domains", *OF_DIGITS), OF_LABELLED
    foreign = labelled if words["dataset"] == "digits" else digits
    homes = ", ".join(SOURCES) if foreign is labelled else "digits"
    for name in foreign:
        _check(
            name not in words,
            f"{_option(name)} says nothing to the data set {words['dataset']}",
            f"{_option(name)} with {homes}",
            f"leave it out, or split another data set; {words['dataset']} takes "
            + ", ".join(_option(own) for own in (digits if foreign is labelled else labelled)),
        )


def _check_heeded(words: Mapping[str, Any], plan: Plan) -> None:
    for name, those in OF_PARTITIONS.items():
        _check(
            name not in words or plan.partition in those,
            f"{_option(name)} says nothing to the partition {plan.partition}",
            f"{_option(name)} with --partition {' or '.join(those)}",
            "leave it out, or choose that partition",
        )


def _check_cache(words: Mapping[str, Any], names: Sequence[str], fetched: Sequence[str]) -> None:
    _check(
        "cache" not in words or bool({*names} & {*fetched}),
        f"--cache says nothing to {', '.join(names)}: nothing is fetched",
        f"--cache with {' or '.join(fetched)}",
        "leave it out",
    )


def _read_domains(text: str | None) -> list[str]:
    names = list(SIX) if text is None else [name.strip() for name in text.split(",") if name.strip()]
    _check(bool(names), f"--domains is {text!r}", f"some of {', '.join(SIX)}")
    for name in names:
        _check(name in SIX, f"there is no digit domain {name!r}", nearest(name, SIX))
        _check(names.count(name) == 1, f"--domains names {name} twice", "each domain once")
    return names


def _read_form(text: str) -> Form:
    if text == "npz":
        return "npz"
    if text == "images":
        return "images"
    raise SettingError(f"--form is {text!r}", expected="npz or images")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check(right: bool, seen: str, expected: str, advice: str = "") -> None:
    if not right:
        raise SettingError(seen, expected=expected, advice=advice)


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


def _open_stock(cache: Path | None) -> sources.Stock:
    """Where fetched archives are kept."""
    return sources.Stock(cache) if cache else sources.Stock()


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
            raise AssertionError(f"{other} is in PARTITIONS alone")
    return partitions.hold_out(parts, seed=seed)
