"""Arrays that are too large for memory: out of the cache comes what numpy would have read at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pfl_client import data
from pfl_client.data import array_rows
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import RunSpec
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import spec

DRAW = np.random.default_rng(4)
KINDS: dict[str, Callable[[], np.ndarray]] = {
    "bytes, channels last": lambda: DRAW.integers(0, 256, (41, 9, 8, 3)).astype(np.uint8),
    "bytes, grey": lambda: DRAW.integers(0, 256, (41, 8, 8)).astype(np.uint8),
    "16 bits": lambda: DRAW.integers(50, 4000, (41, 8, 8)).astype(np.uint16),
    "floats of 0 to 1": lambda: DRAW.random((41, 8, 8, 3)),
    "other floats": lambda: DRAW.normal(0, 3, (41, 3, 8, 8)).astype(np.float32),
    "a table": lambda: DRAW.normal(4000, 1, (41, 7)).astype(np.float32),
    "a series": lambda: DRAW.normal(1, 5, (41, 6, 5)).astype(np.float64),
}


def write(folder: Path, x: np.ndarray, save: Callable[..., None] = np.savez) -> DataFolder:
    """A site with these samples; an eighth of them to test on. Everything is too large for its memory."""
    folder.mkdir(parents=True)
    y = np.arange(len(x)) % 2
    for part, own in (("train", slice(5, None)), ("test", slice(5))):
        save(folder / f"{part}.npz", x=x[own], y=y[own])
    cache = folder.with_name(f"{folder.name}-cache")
    return DataFolder(folder, folder.name, cache=cache, cache_bytes=1 << 24, in_memory=16)


def agreed(folder: DataFolder, *, side: int = 0) -> RunSpec:
    """The run that this site gets by itself."""
    wish = Wish(backbone="mlp", image_size=side)
    return replace(spec(), model=agree({"a": data.describe(folder)}, wish))


@pytest.mark.parametrize(
    ("kind", "side"),
    [(kind, 0) for kind in KINDS] + [(kind, 5) for kind in KINDS if not kind.startswith("a ")],
)
def test_the_same_as_in_memory(tmp_path: Path, kind: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Description and sums, and each sample in the run's form, to the bit; written once."""
    monkeypatch.setattr(array_rows, "BLOCK", 4)
    large = write(tmp_path / "site", KINDS[kind](), np.savez_compressed)
    small = replace(large, cache=None)
    assert data.describe(small) == data.describe(large)
    run = agreed(small, side=side)
    held = data.load(small, run)
    for _ in range(2):
        mapped = data.load(large, run)
        written = {path: path.stat().st_mtime_ns for path in large.cache.glob("*.rows")}
        for part in ("train", "test"):
            one, other = getattr(mapped, part), getattr(held, part)
            assert one.rows is not None
            [(x, y)], [(wanted, labels)] = one.batches(99), other.batches(99)
            assert torch.equal(wanted, x)
            assert torch.equal(labels, y)
    data.load(large, run)
    assert written == {path: path.stat().st_mtime_ns for path in large.cache.glob("*.rows")}


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    """By its content."""
    site = write(tmp_path / "site", KINDS["a table"]())
    run = agreed(site)
    before = next(data.load(site, run).train.batches(99))[0]
    x = KINDS["a table"]()
    for part, own in (("train", slice(5, None)), ("test", slice(5))):
        np.savez(site.path / f"{part}.npz", x=x[own], y=np.arange(41)[own] % 2)
    after = next(data.load(site, run).train.batches(99))[0]
    assert not torch.equal(before, after)
    assert torch.equal(next(data.load(replace(site, cache=None), run).train.batches(99))[0], after)


def test_what_is_wrong_is_found_in_any_block(tmp_path: Path) -> None:
    """A NaN in the last sample."""
    x = KINDS["a table"]()
    x[-1, 3] = np.nan
    with pytest.raises(DataError, match=r"x of train.npz.* holds NaN or infinity"):
        data.describe(write(tmp_path / "site", x))


def test_small_arrays_stay_in_memory(tmp_path: Path) -> None:
    """Reading them from the disk would be no gain; texts are read whole too."""
    site = write(tmp_path / "site", KINDS["a table"]())
    assert data.load(replace(site, in_memory=1 << 20), agreed(site)).train.rows is None
    texts = write(tmp_path / "texts", DRAW.integers(0, 9, (41, 5)))
    (texts.path / "data.json").write_text('{"kind": "tokens", "vocabulary": 9}')
    assert data.load(texts, agreed(texts)).train.rows is None
