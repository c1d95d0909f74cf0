"""Small data folders that are no pictures, learnable: texts, windows of sensors, tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

PARTS = (("train", 24), ("test", 12))


def write_texts(
    folder: Path,
    words: Sequence[str],
    *,
    classes: Sequence[str] = ("bad", "good"),
    length: int = 6,
    said: object = None,
    seed: int = 0,
) -> Path:
    """Texts in which a word that is called like its class occurs, among others; `words` have the numbers from 2 on."""
    rng = np.random.default_rng(seed)
    numbers = {word: number for number, word in enumerate(words, start=2)}
    others = [number for word, number in numbers.items() if word not in classes]
    arrays = {}
    for part, count in PARTS:
        y = np.arange(count) % len(classes)
        x = rng.choice(others, (count, length))
        x[:, 0] = [numbers[classes[label]] for label in y]
        x[:, length - 1] = 0
        arrays[part] = (x, y)
    _save(folder, arrays, classes, said)
    (folder / "vocabulary.json").write_text(json.dumps(list(words)))
    return folder


def write_windows(
    folder: Path, *, channels: int = 3, length: int = 32, said: object = None, seed: int = 0
) -> Path:
    """Windows as time x channels, whose first sensor swings slowly in one class and fast in the other."""
    rng = np.random.default_rng(seed)
    time = np.arange(length)
    arrays = {}
    for part, count in PARTS:
        y = np.arange(count) % 2
        x = rng.normal(5, 0.1, (count, length, channels))
        x[:, :, 0] += 10 * np.sin(time[None] * np.where(y, 1.5, 0.3)[:, None])
        arrays[part] = (x.astype(np.float32), y)
    said = {"kind": "windows", "layout": "time_channels"} if said is None else said
    _save(folder, arrays, ("slow", "fast"), said)
    return folder


def write_table(folder: Path, *, columns: Sequence[str] = (), width: int = 3, seed: int = 0) -> Path:
    """Rows whose first column tells the class."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for part, count in PARTS:
        y = np.arange(count) % 2
        x = rng.normal(100, 3, (count, width))
        x[:, 0] += 20 * y
        arrays[part] = (x, y)
    said = {"kind": "table", "columns": list(columns)} if columns else None
    _save(folder, arrays, ("healthy", "ill"), said)
    return folder


def _save(
    folder: Path,
    arrays: dict[str, tuple[np.ndarray, np.ndarray]],
    classes: Sequence[str],
    said: object,
) -> None:
    folder.mkdir(parents=True)
    for part, (x, y) in arrays.items():
        np.savez(folder / f"{part}.npz", x=x, y=y)
    (folder / "classes.json").write_text(json.dumps(list(classes)))
    if said is not None:
        (folder / "data.json").write_text(json.dumps(said))
