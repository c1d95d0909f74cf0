"""A site's data at a glance: counts, origin, one picture of each class."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

PARTS = ("train", "validation", "test", "shifted")


@dataclass(frozen=True)
class Specimens:
    """A site's counts, origin and pictures; whatever is not quickly read is left empty."""

    counts: dict[str, int]
    licence: str
    strip: str
    """A PNG as base64: one picture of each class, side by side."""


def look(folder: Path) -> Specimens:
    """Look into a folder of arrays; folders of other forms are described by nothing."""
    files = {part: folder / f"{part}.npz" for part in PARTS if (folder / f"{part}.npz").is_file()}
    counts = {part: len(_read(file)[1]) for part, file in files.items()}
    strip = _draw(*_read(files["train"])) if "train" in files else ""
    return Specimens(counts, _licence(folder), strip)


def _read(file: Path) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    with np.load(file) as arrays:
        return arrays["x"], arrays["y"]


def _licence(folder: Path) -> str:
    origin = folder / "origin.json"
    return str(json.loads(origin.read_text()).get("licence", "")) if origin.is_file() else ""


def _draw(x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> str:
    """One picture of each class; samples that are no byte pictures are not drawn."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or x.shape[3:] not in ((), (1,), (3,)):
        return ""
    firsts = [int(np.flatnonzero(y == label)[0]) for label in np.unique(y)]
    row = np.concatenate([x[first] for first in firsts], axis=1).squeeze()
    buffer = io.BytesIO()
    Image.fromarray(row).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
