"""Pictures scaled by channel and changed by chance, from the sites' folders to what a network is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.config import settle
from pfl_common.spec.augmentation import Flip
from pfl_common.spec.run import NOT_SUMMED, Kind, RunSpec, Task
from pfl_common.wire import convert
from pfl_deploy.simulation.simulate import simulate
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from pfl_server.settings import ServerSettings
from tests.client.data.test_images import spec

RNG = np.random.default_rng(5)
AGREED = Wish(backbone="mlp", normalise="agreed")


def files(
    folder: Path, count: int, *, brightest: int = 256, wide: bool = False, grey: bool = False
) -> DataFolder:
    """A site with so many training pictures of two classes, and one of each to test on."""
    for number in range(count + 2):
        part = "train" if number < count else "test"
        place = folder / part / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        shape = (8, 8) if grey or wide else (8, 8, 3)
        values = RNG.integers(0, brightest, shape)
        Image.fromarray(values.astype(np.uint16 if wide else np.uint8)).save(place / f"{number}.png")
    return DataFolder(folder, folder.name, sums=True)


def arrays(folder: Path, x: np.ndarray) -> DataFolder:
    """A site with these samples in both parts."""
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        np.savez(folder / f"{part}.npz", x=x, y=np.arange(len(x)) % 2)
    return DataFolder(folder, folder.name, sums=True)


def agreed(*folders: DataFolder, wish: Wish = AGREED) -> RunSpec:
    """The run that these sites agree on, from descriptions that have crossed."""
    said = {
        one.site: convert.hear_description(convert.say_description(data.describe(one))) for one in folders
    }
    return replace(spec(), model=agree(said, wish))


def taken(run: RunSpec, *folders: DataFolder) -> torch.Tensor:
    """All training pictures as a network is given them."""
    return torch.cat([x for folder in folders for x, _ in data.load(folder, run).train.batches(100)])


def test_by_the_training_pictures_of_all_sites(tmp_path: Path) -> None:
    """Together each channel has mean 0 and deviation 1, whether a site has files or arrays."""
    bright = arrays(tmp_path / "c", RNG.integers(128, 256, (9, 8, 8, 3)).astype(np.uint8))
    sites = [files(tmp_path / "a", 6), files(tmp_path / "b", 14, brightest=40), bright]
    x = taken(agreed(*sites), *sites).double()
    np.testing.assert_allclose(x.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(x.std((0, 2, 3), correction=0), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["wide files", "floats of 0 to 1", "floats of 0 to 255"])
def test_raw_values_are_summed_as_they_will_be_scaled(tmp_path: Path, kind: str) -> None:
    """The coordinator knows the range only when all sites have come, and sums are turned with it."""
    drawn = RNG.random((9, 8, 8, 3)).astype(np.float32)
    sites = {
        "wide files": lambda: [
            files(tmp_path / "a", 6, wide=True, brightest=3000),
            files(tmp_path / "b", 8, wide=True),
        ],
        "floats of 0 to 1": lambda: [arrays(tmp_path / "a", drawn), arrays(tmp_path / "b", drawn / 3)],
        "floats of 0 to 255": lambda: [
            arrays(tmp_path / "a", drawn * 250),
            arrays(tmp_path / "b", drawn * 99),
        ],
    }[kind]()
    x = taken(agreed(*sites), *sites).double()
    # Pictures of 16 bits become one of 256 levels.
    tolerance = 5e-3 if kind == "wide files" else 1e-4
    axes = (0, 2, 3)
    np.testing.assert_allclose(x.mean(axes), 0, atol=tolerance)
    np.testing.assert_allclose(x.std(axes, correction=0), 1, atol=tolerance)


def test_few_pictures_are_not_told(tmp_path: Path) -> None:
    """Sums over four pictures would say how bright each may be; the site is scaled by the others'."""
    few, many = files(tmp_path / "few", 4), files(tmp_path / "many", 8)
    assert NOT_SUMMED == data.describe(few).moments
    assert agreed(many).model.pixel_mean == agreed(few, many).model.pixel_mean
    assert data.describe(replace(many, sums=False)).moments is None


def test_the_coordinator_asks_for_sums(tmp_path: Path) -> None:
    """Sites describe their data without them; asked, they join again with them, and the run begins."""
    folders = [files(tmp_path / name, 6).path for name in ("a", "b")]
    words = {
        "method": "fedavg",
        "rounds": 1,
        "sites": 2,
        "backbone": "mlp",
        "normalise": "agreed",
        "augment": "flip",
        "state": tmp_path / "state" / "coordinator",
    }
    spec = simulate(settle(ServerSettings, words, what="test"), folders, tmp_path / "state" / "sites").spec
    assert (
        agreed(*(DataFolder(one, one.name, sums=True) for one in folders)).model.pixel_mean
        == spec.model.pixel_mean
    )
    assert ((Flip(),), True) == (
        spec.augment,
        "over the training pictures of 2 sites" in spec.chosen["normalise"],
    )


def test_training_pictures_alone_are_changed(tmp_path: Path) -> None:
    """Each sample as it is or mirrored, drawn anew in each epoch; the test part is as it was."""
    folder = files(tmp_path / "a", 12)
    plain = replace(spec(), model=agree({"a": data.describe(folder)}, Wish(backbone="mlp", normalise="half")))
    run, task = replace(plain, augment=(Flip(),)), Task(Kind.TRAIN, 1, 2)
    local, still = data.load(folder, run), data.load(folder, plain)

    def train(one: data.LocalData, epoch: int) -> torch.Tensor:
        return torch.cat([x for x, _ in one.batches(task, epoch, size=5)])

    for epoch in (0, 1):
        own, before = train(local, epoch), train(still, epoch)
        mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(own, before, strict=True)]
        assert [not one for one in mirrored] == [torch.equal(a, b) for a, b in zip(own, before, strict=True)]
        assert {True, False} == set(mirrored)
    assert torch.equal(train(local, 0), train(local, 0))
    for part in ("test", "train"):
        [(x, _)], [(before, _)] = (list(getattr(one, part).batches(50)) for one in (local, still))
        assert torch.equal(before, x)
