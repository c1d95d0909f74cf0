"""Writes one site's data folder, as arrays (`train.npz`) or as pictures (`train/<class>/00000.png`).

Equal data give equal bytes: nothing here depends on the clock, the process or the order of a dictionary.
A folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from pfl_common.errors import DataError, SettingError, nearest
from pfl_deploy.datasets.labelled import ClientData, Form, Labelled

FORMS = ("npz", "images")
_SAFE_NAME = re.compile(r"[\w][\w .+-]*")


def write_folder(folder: Path, data: ClientData, *, form: Form = "npz") -> Path:
    """Write a site's folder and give its path back; a folder that holds something is left alone."""
    if form not in FORMS:
        raise SettingError(f"unknown form {form!r}", expected="npz or images", advice=nearest(form, FORMS))
    _check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        _fill(unfinished, data, form)
        os.replace(unfinished, folder)  # an empty folder of that name is replaced as well
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(
            f"{folder} exists and is not empty",
            expected="a new folder for this site",
            advice="choose another output folder, or remove this one",
        )


def _fill(folder: Path, data: ClientData, form: Form) -> None:
    for name, part in data.splits().items():
        if form == "npz":
            np.savez_compressed(folder / f"{name}.npz", x=part.x, y=part.y.astype(np.int64))
        else:
            _write_pictures(folder / name, part, data)
    if form == "npz":
        _write_json(folder / "classes.json", list(data.classes))
    if data.origin:
        _write_json(folder / "origin.json", dict(data.origin))


def _write_pictures(folder: Path, part: Labelled, data: ClientData) -> None:
    if part.x.dtype != np.uint8 or part.x.ndim not in (3, 4):
        raise DataError(
            f"examples are {part.x.dtype} of shape {part.x.shape[1:]}",
            expected="uint8 pictures, height x width or height x width x channels",
            advice="use the npz form for anything else",
        )
    for number, (pixels, label) in enumerate(zip(part.x, part.y, strict=True)):
        place = folder / _folder_name(data.classes[int(label)])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(place / f"{number:05d}.png")


def _folder_name(class_name: str) -> str:
    if not _SAFE_NAME.fullmatch(class_name):
        raise DataError(
            f"class name {class_name!r} cannot be a folder's name",
            expected="letters, digits, blanks, and . + - _",
            advice="rename the class, or use the npz form",
        )
    return class_name


def _write_json(path: Path, content: object) -> None:
    path.write_text(
        json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
