"""Samples of each kind are prepared as the site's own were, and what does not fit is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pfl_client import data
from pfl_client.prediction.inputs import Inputs, Unread, Wanted, list_inputs
from pfl_client.trainer_process.api import DataFolder
from pfl_common.spec.run import Model, RunSpec
from tests.client.data.written import write_table, write_texts, write_windows

NUMBERS: dict[str, Any] = {"values": "numbers"}
MODELS = {
    "windows": Model(
        "har_cnn",
        (3, 32),
        ("fast", "slow"),
        kind="windows",
        mean=(5.0, 4.0, 3.0),
        deviation=(2.0, 1.0, 3.0),
        **NUMBERS,
    ),
    "table": Model(
        "mlp",
        (3,),
        ("healthy", "ill"),
        kind="table",
        columns=("a", "b", "c"),
        mean=(100.0, 90.0, 80.0),
        deviation=(3.0, 2.0, 1.0),
        **NUMBERS,
    ),
    "texts": Model(
        "fasttext",
        (8,),
        ("bad", "good"),
        kind="tokens",
        tokens=5,
        numbering="words",
        words=("bad", "fever", "good"),
        **NUMBERS,
    ),
}
WRITE: dict[str, Callable[[Path], Path]] = {
    "windows": write_windows,
    "table": lambda folder: write_table(folder, columns=("a", "b", "c")),
    "texts": lambda folder: write_texts(folder, ["the", "bad", "fever", "good"]),
}


def pin(model: Model) -> RunSpec:
    """A run of this model; nothing of it is trained here."""
    return RunSpec("run-1", "fedavg", {}, model, ("site",), rounds=1, seed=0)


def read(
    spec: RunSpec, *paths: Path, **wanted: object
) -> tuple[list[torch.Tensor], torch.Tensor, list[Unread]]:
    """All samples of some files, their classes, and what could not be read."""
    bad: list[Unread] = []
    inputs = Inputs(spec, "site", wanted=Wanted(**wanted), unread=bad.append)
    blocks = list(inputs.blocks(list_inputs(paths), 5))
    return (
        [row for b in blocks for row in b.x],
        torch.cat([b.labels for b in blocks] or [torch.empty(0)]),
        bad,
    )


@pytest.mark.parametrize("kind", MODELS)
def test_arrays_are_prepared_as_the_sites_own(kind: str, tmp_path: Path) -> None:
    """Layout, words, scaling and classes: equal to the bit; from elsewhere too, read like the folder."""
    folder = WRITE[kind](tmp_path / "site")
    spec = pin(MODELS[kind])
    local = data.load(DataFolder(folder, "site"), spec)
    x, labels, bad = read(spec, folder / "test.npz", labelled=True)
    assert [] == bad
    assert torch.equal(local.test.x, torch.stack(x))
    assert torch.equal(local.test.y, labels)
    (folder / "test.npz").rename(tmp_path / "moved.npz")
    moved, labels, _ = read(spec, tmp_path / "moved.npz", like=folder, labelled=True)
    assert torch.equal(local.test.x, torch.stack(moved))
    assert torch.equal(local.test.y, labels)


def test_pictures_of_floats_are_what_the_run_says(tmp_path: Path) -> None:
    """A few dark ones of 0 to 255 look like ones of 0 to 1."""
    spec = pin(Model("cnn", (1, 8, 8), ("a", "b"), values="byte_floats", low=0, high=255))
    np.savez(tmp_path / "dark.npz", x=np.full((2, 8, 8, 1), 0.5, np.float32))
    x, _, bad = read(spec, tmp_path / "dark.npz")
    assert [] == bad
    assert x[0].unique().tolist() == pytest.approx([0.5 / 255])


def test_a_table_of_commas_is_as_good_as_an_array(tmp_path: Path) -> None:
    """With its classes by name; without the name of their column that is said at once."""
    spec = pin(MODELS["table"])
    folder = WRITE["table"](tmp_path / "site")
    with np.load(folder / "test.npz") as file:
        x, y = file["x"].astype(np.float32), file["y"]
    lines = [
        f"{','.join(map(repr, map(float, row)))},{['healthy', 'ill'][label]}"
        for row, label in zip(x, y, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,state", *lines]))
    local = data.load(DataFolder(folder, "site"), spec)
    rows, labels, bad = read(spec, tmp_path / "t.csv", labelled=True, label="state")
    assert [] == bad
    assert torch.equal(local.test.x, torch.stack(rows))
    assert torch.equal(local.test.y, labels)


def test_what_does_not_fit_is_told_by_file(tmp_path: Path) -> None:
    """Another shape, numbers that are none, an unknown class, a picture among tables, texts without their words."""
    spec = pin(MODELS["table"])
    np.savez(tmp_path / "1.npz", x=np.zeros((2, 4)))
    np.savez(tmp_path / "2.npz", x=np.full((7, 3), np.nan))
    np.savez(tmp_path / "3.npz", x=np.zeros((2, 3)), y=np.array([0, 9]))
    (tmp_path / "4.png").write_bytes(b"")
    (tmp_path / "5.csv").write_text("a,b,c\n1,2,\n")
    _, _, bad = read(spec, tmp_path)
    assert [1, 2, 4, 5] == [unread.place for unread in bad]
    assert [None, None, None, 1] == [unread.row for unread in bad]
    assert "rows 1 to 5" in bad[1].why
    (tmp_path / "classes.json").write_text(json.dumps(["healthy", "ill"]))
    _, _, bad = read(spec, tmp_path / "3.npz", labelled=True)
    assert "the label 9" in bad[0].why
    np.savez(tmp_path / "6.npz", x=np.full((2, 4), 2))
    _, _, bad = read(pin(MODELS["texts"]), tmp_path / "6.npz")
    assert "texts are numbers" in bad[0].why


def test_folders_are_walked_once(tmp_path: Path) -> None:
    """A link that leads back is not followed for ever; what describes a data folder is no sample."""
    (tmp_path / "deep").mkdir()
    for name in ("b.png", "a.png", "data.json", "Thumbs.db", ".DS_Store"):
        (tmp_path / "deep" / name).touch()
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    assert ["a.png", "b.png"] == [file.name for file in list_inputs([tmp_path])]
