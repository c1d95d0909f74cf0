"""A site's data at a glance: what is counted, and what is drawn."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from pfl_deploy.demo.samples import Specimens, look


def keep(folder: Path, part: str, x: np.ndarray, y: list[int]) -> None:
    """One part of a site's data."""
    np.savez(folder / f"{part}.npz", x=x, y=np.array(y))


def test_the_first_picture_of_each_class_side_by_side(tmp_path: Path) -> None:
    """By class and not by place; of the training part alone."""
    x = np.stack([np.full((2, 2), value, np.uint8) for value in (10, 20, 30, 40)])
    keep(tmp_path, "train", x, [7, 3, 7, 3])
    keep(tmp_path, "test", x[:1], [7])
    (tmp_path / "origin.json").write_text(json.dumps({"licence": "CC0"}))
    found = look(tmp_path)
    assert ({"train": 4, "test": 1}, "CC0") == (found.counts, found.licence)
    with Image.open(io.BytesIO(base64.b64decode(found.strip))) as strip:
        assert [[20, 20, 10, 10]] * 2 == np.asarray(strip).tolist()


def test_what_is_no_picture_is_not_drawn(tmp_path: Path) -> None:
    """Floats, rows of a table and a folder of another form: counted, if anything."""
    keep(tmp_path, "train", np.zeros((3, 4, 4), np.float32), [0, 1, 2])
    assert Specimens({"train": 3}, "", "") == look(tmp_path)
    keep(tmp_path, "train", np.zeros((3, 4), np.uint8), [0, 1, 2])
    assert "" == look(tmp_path).strip
    assert Specimens({}, "", "") == look(tmp_path / "none")
