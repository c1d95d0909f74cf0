"""Small data folders that are no pictures, learnable: texts, windows of sensors, tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
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


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """A file of rows: CSV, Parquet or JSON lines, as its name says; None is a missing cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.DictWriter(stream, names)
            table.writeheader()
            table.writerows(rows)
    return path


def make_patients(count: int = 48, *, seed: int = 0) -> list[dict[str, object]]:
    """Rows of a ward: age tells the class, sex and ward do not, some ages are missing; two visits of each patient."""
    rng = np.random.default_rng(seed)
    return [
        {
            "patient": f"p{place // 2}",
            "age": None if place % 8 == 5 else round(float(50 + 20 * (place // 2 % 2) + rng.normal()), 2),
            "sex": "fm"[int(rng.integers(2))],
            "ward": "ab"[int(rng.integers(2))],
            "label": ("well", "ill")[place // 2 % 2],
        }
        for place in range(count)
    ]


def write_recordings(folder: Path, *, steps: int = 96, count: int = 4, seed: int = 0) -> Path:
    """Recordings of two sensors, with a column of time; one sensor swings slowly in one class and fast in the other."""
    rng = np.random.default_rng(seed)
    for part in ("train", "test"):
        for label, speed in (("slow", 0.3), ("fast", 1.5)):
            for number in range(count):
                time = np.arange(steps)
                z = 5 + 10 * np.sin(time * speed + rng.random())
                rows = [
                    {"time": t / 50, "z": round(float(z[t]), 4), "a": round(float(rng.normal()), 4)}
                    for t in time
                ]
                write_rows(folder / part / label / f"recording_{number}.csv", rows)
    (folder / "data.json").write_text(json.dumps({"window": 32, "step": 16}))
    return folder
