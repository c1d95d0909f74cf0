"""Reads array files: x and y of each part, as pictures, texts, windows of sensors, tables or plain numbers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from torch import Tensor

from pfl_client.data import array_bounds, forms, image_decoding, leakage, picture_sums, scaling, vocabulary
from pfl_client.data.array_file import read_outline
from pfl_client.data.array_rows import ArrayRows, is_mapped
from pfl_client.data.declaration import Declared
from pfl_client.data.findings import KIND_OF_VALUES
from pfl_client.data.forms import Column, Form
from pfl_client.data.json_file import read_json
from pfl_client.data.layout import PARTS, SHIFTED, ArrayFiles
from pfl_client.data.scaling import Floats, Scale, Wide
from pfl_client.data.value_spread import Spread
from pfl_client.data.vocabulary import Numbers, Vocabulary
from pfl_client.data.warnings import number_classes, remark
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.learning.method import Samples
from pfl_common.spec.data_description import FEWEST_SUMMED, MOST_CLASSES, alike, kind_of
from pfl_common.spec.run import NOT_SUMMED, Description, Moments, RunSpec


@dataclass(frozen=True)
class Part:
    """The samples of one part as they are stored, pictures with channels first, and the site's own class numbers."""

    x: Column
    y: Column
    digest: str = ""
    """Of the file they come from, if they lie in the site's cache."""

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Arrays:
    """The samples of all parts, checked."""

    parts: dict[str, Part]
    names: tuple[str, ...]
    form: Form
    vocabulary: Vocabulary | None = None
    """Of texts."""
    columns: tuple[str, ...] = ()
    """Of tables, if they have names."""

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """Samples by part and class."""
        return {
            part: Counter(self.names[label] for label in own.y.tolist()) for part, own in self.parts.items()
        }


def describe(arrays: Arrays, folder: DataFolder, *, listed: bool) -> Description:
    """Shape, classes, number of training samples, range, sums and warnings; are the names of the classes `listed`?"""
    form, counts, train = arrays.form, arrays.counts, arrays.parts["train"]
    shape = tuple(train.x.shape[1:])
    # Without a list of names only the labels that occur are classes: labels 1 to 3 are no four.
    occurring = {name for own in counts.values() for name in own}
    pictures = sum(len(part) for name, part in arrays.parts.items() if name != SHIFTED)
    moments = _sum_up(train, form, pictures=folder.sums)
    low, high = form.low, form.high
    if moments is not None:
        # Sums of values beyond a range that data.json names would be taken for a lie.
        ends = forms.find_range(train.x)
        low, high = min(low, ends[0]), max(high, ends[1])
    text = arrays.vocabulary
    return Description(
        shape=shape,
        classes=tuple(sorted(arrays.names)) if listed else tuple(n for n in arrays.names if n in occurring),
        samples=len(train),
        kind=form.kind,
        warnings=(
            *_stretched(train, form),
            *remark(counts, folder),
            *leakage.warn_of_equal_samples({part: own.x for part, own in arrays.parts.items()}),
        ),
        sizes=((shape[1], shape[2], pictures),) if form.is_image else (),
        values=form.values,
        low=low,
        high=high,
        moments=moments,
        numbering=text.numbering if text else "",
        words=text.words if text and text.numbering == "words" else (),
        tokens=_count_told(text) if text else 0,
        columns=arrays.columns,
    )


def _count_told(text: Vocabulary) -> int:
    """The number of word numbers, where all sites must have the same; 0 elsewhere."""
    return {"hashed": text.buckets, "numbers": text.tokens}.get(text.numbering, 0)


def _sum_up(train: Part, form: Form, *, pictures: bool) -> Moments | None:
    if pictures and form.is_image and form.values != "signed":
        height_by_width = math.prod(train.x.shape[2:])
        return picture_sums.add_up((picture_sums.measure(one) for one in train.x), numbers=height_by_width)
    if form.values not in ("signed", "numbers") or form.kind == "tokens":
        return None
    moments = scaling.sum_up(cast(Floats, train.x), channels=form.has_channels)
    # Over one sample they would be that sample.
    return moments if moments.count >= FEWEST_SUMMED else NOT_SUMMED


def load(arrays: Arrays, folder: DataFolder, spec: RunSpec, rows: ArrayRows) -> dict[str, Samples]:
    """All samples with the run's class numbers; pictures and numbers as the run agreed on them."""
    check_values(arrays, folder, spec)
    seen = sorted({label for part in arrays.parts.values() for label in part.y.tolist()})
    numbers = number_classes([arrays.names[label] for label in seen], folder, spec)
    # A class without samples may be unknown to the run: its place is never looked up.
    table = torch.tensor([numbers.get(name, -1) for name in arrays.names], dtype=torch.int64)
    labels = {part: table[torch.from_numpy(own.y)] for part, own in arrays.parts.items()}
    parts = {}
    for part, own in arrays.parts.items():
        if is_mapped(own.x) and len(own):
            x = torch.from_numpy(_map(own, arrays.form, folder, spec=spec, rows=rows))
            parts[part] = Samples(x, labels[part], rows=torch.arange(len(own)))
        else:
            parts[part] = Samples(fit_part(part, arrays, folder, spec=spec), labels[part])
    return parts


def _map(own: Part, form: Form, folder: DataFolder, *, spec: RunSpec, rows: ArrayRows) -> Column:
    """Samples of the cache in the run's shape and scale, in the cache too; themselves where they have both."""
    model = spec.model
    whole = model.shape == own.x.shape[1:]
    as_is = form.values == "bytes" if form.is_image else not model.mean
    if whole and as_is:
        return own.x
    scale = (model.shape, model.low, model.high, model.per_picture, model.mean, model.deviation)
    recipe = {"of": own.digest, "form": asdict(form), "scale": scale}
    return rows.fit(own.x, recipe, lambda some: _fit(some, form, folder, spec=spec).numpy())


def fit_part(part: str, arrays: Arrays, folder: DataFolder, *, spec: RunSpec) -> Tensor:
    """The samples of a part in the run's shape and scale; training, evaluation and prediction all go this way."""
    x = arrays.parts[part].x
    if arrays.vocabulary is None:
        return _fit(x, arrays.form, folder, spec=spec)
    texts = cast(Numbers, x)
    return torch.from_numpy(vocabulary.fit(texts, arrays.vocabulary, folder, model=spec.model, part=part))


def _fit(x: Column, form: Form, folder: DataFolder, *, spec: RunSpec) -> Tensor:
    shape = spec.model.shape
    if form.is_image and len(shape) == 3 and shape[0] in (1, 3):
        scale = Scale.of(spec.model)
        if form.values == "bytes":
            return image_decoding.fit_all(torch.from_numpy(x), shape)
        if form.values == "wide" and scale is not None:
            return image_decoding.fit_all(_narrow(cast(Wide, x), scale), shape)
        return _fit_floats(x, scale, spec)
    if tuple(x.shape[1:]) != shape:
        raise DataError(
            f"{folder.site} has {_kind(x)} samples, the run has {shape}",
            expected=f"samples of shape {shape}",
            advice="check --data, bring the arrays to that shape, or join another run",
        )
    return torch.from_numpy(scaling.standardise(cast(Floats, x), spec.model, channels=form.has_channels))


def _narrow(x: Wide, scale: Scale) -> Tensor:
    narrow = np.empty(x.shape, np.uint8)
    for place, picture in enumerate(x):
        narrow[place] = scale.to_bytes(picture)
    return torch.from_numpy(narrow)


def _fit_floats(x: Column, scale: Scale | None, spec: RunSpec) -> Tensor:
    fitted = torch.empty((len(x), *spec.model.shape))
    for place, picture in enumerate(x):
        fitted[place] = image_decoding.fit_floats(
            scale.to_unit(picture) if scale else picture, spec.model.shape
        )
    return torch.from_numpy(scaling.standardise(fitted.numpy(), spec.model, channels=True))


def check_values(arrays: Arrays, folder: DataFolder, spec: RunSpec) -> None:
    """Refuse samples of another kind, or stored otherwise, than the run was agreed on."""
    own, run = arrays.form.values, spec.model.values
    kind, run_kind = arrays.form.kind, kind_of(spec.model, arrays.form.kind)
    if alike(kind) != alike(run_kind):
        raise DataError(
            f"{folder.site} has data of the kind {kind!r}, the run is about {run_kind!r}",
            expected=f"{run_kind!r}",
            advice='check --data, and "kind" in data.json',
        )
    if arrays.form.is_image and own != run and (own, run) != ("bytes", "wide"):
        raise DataError(
            f"{folder.site} has {KIND_OF_VALUES[own]}, the run was agreed on {KIND_OF_VALUES[run]}",
            expected=KIND_OF_VALUES[run],
            advice="store them so, say in data.json what they are, or have a new run started with all sites present",
        )


def _stretched(train: Part, form: Form) -> list[str]:
    if form.values != "wide":
        return []
    spread = Spread()
    for place, picture in enumerate(train.x, start=1):
        spread.add(picture, f"sample {place} of train.npz")
    return list(spread.remarks())


def read(found: ArrayFiles, declared: Declared, rows: ArrayRows) -> Arrays:
    """All parts, checked against each other and against what `data.json` says; large ones mapped in the cache."""
    raw = {part: _read_part(path, large=rows.is_large(path)) for part, path in found.parts.items()}
    train = raw["train"]
    if not len(train):
        raise DataError(
            "train.npz holds no samples", expected="at least one", advice="check how the file was made"
        )
    text = vocabulary.read(found, declared)
    form = forms.recognise(train.x, declared, file="train.npz", words=text is not None)
    parts = {part: _arrange(own, found.parts[part], form, rows) for part, own in raw.items()}
    for part, own in parts.items():
        if (own.x.shape[1:], own.x.dtype) != (parts["train"].x.shape[1:], parts["train"].x.dtype):
            raise DataError(
                f"{part}.npz has samples of {_kind(own.x)}, train.npz has {_kind(parts['train'].x)}",
                expected="the same shape and type in all parts",
                advice="make the files again, all in one way",
            )
    names = _read_names(found.classes, parts)
    empty = Part(parts["train"].x[:0], train.y[:0])
    if form.kind == "tokens":
        text = vocabulary.check(text, {part: own.x for part, own in parts.items()})
    else:
        low, high = declared.range or forms.find_range(parts["train"].x)
        form = replace(form, low=low, high=high)
        form = replace(form, values=forms.classify(form, declared))
    return Arrays(
        {part: parts.get(part, empty) for part in PARTS}, names, form, text, _name_columns(train, declared)
    )


def _arrange(own: Part, path: Path, form: Form, rows: ArrayRows) -> Part:
    if not rows.is_large(path):
        return Part(forms.arrange(own.x, form, file=path.name), own.y)
    if form.kind == "tokens":
        # All words of all texts are looked at together: they are read whole.
        return Part(forms.arrange(_open(path)[0], form, file=path.name), own.y)
    x, digest = rows.arrange(own.x, path, form)
    return Part(x, own.y, digest)


def _name_columns(train: Part, declared: Declared) -> tuple[str, ...]:
    names = declared.columns or ()
    if names and len(names) != train.x.shape[1]:
        raise DataError(
            f"data.json names {len(names)} columns, x of train.npz has {train.x.shape[1]}",
            expected="a name for each column, in their order",
            advice='correct "columns" in data.json, or remove it',
        )
    return names


def _read_part(path: Path, *, large: bool) -> Part:
    x, y = _open(path, large=large)
    if y.dtype.kind not in "iu" or y.ndim != 1:
        raise DataError(
            f"y of {path.name} is {y.dtype}{y.shape}",
            expected="one whole number per sample, the class",
            advice="save the labels as an integer array of one dimension",
        )
    if x.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{path.name} has {len(x) if x.ndim else 'no'} samples in x and {len(y)} labels in y",
            expected="as many labels as samples",
            advice="check how the file was made",
        )
    return Part(x, y.astype(np.int64))


def _open(path: Path, *, large: bool = False) -> tuple[Column, Column]:
    """The samples, of a large file their outline alone, and the labels."""
    with array_bounds.reading(path.name), path.open("rb") as stream:
        held = ["a single array"]
        if not _is_single(stream):
            array_bounds.check_archive(path)
            # A pickled object inside would run its writer's code.
            file = np.load(stream, allow_pickle=False)
            held = list(file.files)
            if {"x", "y"} <= set(held):
                return read_outline(path) if large else file["x"], file["y"]
    raise DataError(
        f"{path.name} holds {', '.join(held) or 'nothing'}",
        expected="two arrays, x and y",
        advice=f"write it with numpy.savez({path.name!r}, x=..., y=...)",
    )


def _is_single(stream: IO[bytes]) -> bool:
    """Whether a file is an .npy by its first bytes; it is left at its beginning."""
    begins = stream.read(len(np.lib.format.MAGIC_PREFIX))
    stream.seek(0)
    return begins == np.lib.format.MAGIC_PREFIX


def _read_names(path: Path | None, parts: dict[str, Part]) -> tuple[str, ...]:
    for part, samples in parts.items():
        if len(samples) and int(samples.y.min()) < 0:
            raise DataError(
                f"{part}.npz has the label {int(samples.y.min())}",
                expected="labels 0, 1, 2, ...",
                advice="number the classes from 0; remove samples that have no class",
            )
    highest = {part: int(samples.y.max()) for part, samples in parts.items() if len(samples)}
    for part, label in highest.items():
        # Before there is a name, or a place in a table, for each number up to it.
        if label >= MOST_CLASSES:
            raise DataError(
                f"{part}.npz has the label {label}",
                expected=f"labels 0 to {MOST_CLASSES - 1}",
                advice="number the classes from 0 without gaps; codes of another system go into classes.json",
            )
    if path is None:
        return tuple(str(label) for label in range(max(highest.values()) + 1))
    names = read_names(path)
    for part, label in highest.items():
        if label >= len(names):
            raise DataError(
                f"{part}.npz has the label {label}, classes.json names {len(names)} classes",
                expected=f"labels 0 to {len(names) - 1}",
                advice="add the missing names to classes.json, in the order of the labels",
            )
    return names


def read_names(path: Path) -> tuple[str, ...]:
    """The names in a `classes.json`, in the order of the labels."""
    try:
        names = read_json(path)
    except (OSError, ValueError) as error:
        names = type(error).__name__
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise DataError(
            "classes.json is no list of names",
            expected='for example ["cat", "dog"], in the order of the labels',
            advice="write it again",
        )
    if len(names) > MOST_CLASSES:
        raise DataError(
            f"classes.json names {len(names)} classes",
            expected=f"at most {MOST_CLASSES}",
            advice="write it again",
        )
    if len(set(names)) < len(names):
        double = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(
            f"classes.json names {double!r} twice", expected="each class once", advice="correct the list"
        )
    return tuple(names)


def _kind(x: Column) -> str:
    return f"{x.dtype} {tuple(x.shape[1:])}"
