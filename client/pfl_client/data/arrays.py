"""Files of arrays: x and y of each part, images as bytes or any numbers as float32."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pfl_client.bench import DataFolder
from pfl_client.data import pixels
from pfl_client.data.layout import PARTS, ArrayFiles
from pfl_client.data.remarks import number_classes, remark
from pfl_common.errors import DataError
from pfl_common.halves import Samples
from pfl_common.run import Description, RunSpec

IMAGES = "images as uint8 (N, height, width) or (N, height, width, 1 or 3), or numbers as float32 (N, ...)"

# Whatever the site has put into its file, until it is checked.
Column: TypeAlias = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Arrays:
    """The samples of all parts, checked, with the site's own class numbers."""

    parts: dict[str, Samples]
    names: tuple[str, ...]

    @property
    def is_image(self) -> bool:
        """Whether samples are images that can be resized."""
        return self.parts["train"].x.dtype == torch.uint8


def describe(found: ArrayFiles, folder: DataFolder) -> Description:
    """Shape, classes, number of training samples and warnings."""
    arrays = _read(found)
    counts = {
        part: Counter(arrays.names[label] for label in s.y.tolist()) for part, s in arrays.parts.items()
    }
    return Description(
        shape=tuple(arrays.parts["train"].x.shape[1:]),
        classes=tuple(sorted(arrays.names)),
        samples=len(arrays.parts["train"]),
        kind="image" if arrays.is_image else "array",
        warnings=tuple(remark(counts, folder)),
    )


def load(found: ArrayFiles, folder: DataFolder, spec: RunSpec) -> dict[str, Samples]:
    """All samples with the run's class numbers; images in the run's shape, other numbers as they are."""
    arrays = _read(found)
    seen = sorted({label for samples in arrays.parts.values() for label in samples.y.tolist()})
    numbers = number_classes([arrays.names[label] for label in seen], folder, spec)
    # A class without samples may be unknown to the run: its place is never looked up.
    table = torch.tensor([numbers.get(name, -1) for name in arrays.names], dtype=torch.int64)
    return {
        part: Samples(_fit(samples.x, arrays, folder, shape=spec.model.shape), table[samples.y])
        for part, samples in arrays.parts.items()
    }


def _fit(x: Tensor, arrays: Arrays, folder: DataFolder, *, shape: tuple[int, ...]) -> Tensor:
    own = tuple(x.shape[1:])
    if arrays.is_image and len(shape) == 3 and shape[0] in (1, 3):
        return pixels.fit_all(x, shape)
    if own != shape:
        raise DataError(
            f"{folder.site} has {_kind(x)} samples, the run has {shape}",
            expected=f"samples of shape {shape}",
            advice="check --data, bring the arrays to that shape, or join another run",
        )
    return x


def _read(found: ArrayFiles) -> Arrays:
    parts = {part: _read_part(path) for part, path in found.parts.items()}
    train = parts["train"]
    if not len(train):
        raise DataError(
            "train.npz holds no samples", expected="at least one", advice="check how the file was made"
        )
    empty = Samples(train.x[:0], train.y[:0])
    for part, samples in parts.items():
        if (samples.x.shape[1:], samples.x.dtype) != (train.x.shape[1:], train.x.dtype):
            raise DataError(
                f"{part}.npz has samples of {_kind(samples.x)}, train.npz has {_kind(train.x)}",
                expected="the same shape and type in all parts",
                advice="make the files again, all in one way",
            )
    return Arrays({part: parts.get(part, empty) for part in PARTS}, _read_names(found.classes, parts))


def _read_part(path: Path) -> Samples:
    x, y = _open(path)
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
    return Samples(_to_tensor(x, path), torch.from_numpy(y.astype(np.int64)))


def _open(path: Path) -> tuple[Column, Column]:
    try:
        with path.open("rb") as stream:
            # A pickled object inside would run its writer's code.
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile) and {"x", "y"} <= set(file.files):
                return file["x"], file["y"]
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path.name} cannot be read as arrays: {type(error).__name__}",
            expected="a file written by numpy.savez, without Python objects in it",
            advice="write it again, with plain arrays of numbers",
        ) from None
    raise DataError(
        f"{path.name} holds {', '.join(getattr(file, 'files', ['a single array'])) or 'nothing'}",
        expected="two arrays, x and y",
        advice=f"write it with numpy.savez({path.name!r}, x=..., y=...)",
    )


def _to_tensor(x: Column, path: Path) -> Tensor:
    if x.dtype == np.uint8 and (x.ndim == 3 or (x.ndim == 4 and x.shape[3] in (1, 3))):
        images = torch.from_numpy(x)
        return images.unsqueeze(1) if x.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()
    if x.dtype.kind != "f" or x.ndim < 2:
        raise DataError(
            f"x of {path.name} is {x.dtype}{x.shape}", expected=IMAGES, advice="save it in one of these forms"
        )
    with np.errstate(over="ignore"):  # what overflows is infinite and found by the next line
        numbers = torch.from_numpy(x.astype(np.float32))
    odd = (~torch.isfinite(numbers)).flatten(1).any(1)
    if bool(odd.any()):
        raise DataError(
            f"x of {path.name} holds NaN or infinity in {int(odd.sum())} of {len(x)} samples, "
            f"first in sample {int(odd.nonzero()[0]) + 1}",
            expected="finite numbers that float32 can hold",
            advice="fill in or remove these samples",
        )
    return numbers


def _read_names(path: Path | None, parts: dict[str, Samples]) -> tuple[str, ...]:
    for part, samples in parts.items():
        if len(samples) and int(samples.y.min()) < 0:
            raise DataError(
                f"{part}.npz has the label {int(samples.y.min())}",
                expected="labels 0, 1, 2, ...",
                advice="number the classes from 0; remove samples that have no class",
            )
    highest = {part: int(samples.y.max()) for part, samples in parts.items() if len(samples)}
    if path is None:
        return tuple(str(label) for label in range(max(highest.values()) + 1))
    names = _parse_names(path)
    for part, label in highest.items():
        if label >= len(names):
            raise DataError(
                f"{part}.npz has the label {label}, classes.json names {len(names)} classes",
                expected=f"labels 0 to {len(names) - 1}",
                advice="add the missing names to classes.json, in the order of the labels",
            )
    return names


def _parse_names(path: Path) -> tuple[str, ...]:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        names = type(error).__name__
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise DataError(
            "classes.json is no list of names",
            expected='for example ["cat", "dog"], in the order of the labels',
            advice="write it again",
        )
    if len(set(names)) < len(names):
        double = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(
            f"classes.json names {double!r} twice", expected="each class once", advice="correct the list"
        )
    return tuple(names)


def _kind(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape[1:])}"
