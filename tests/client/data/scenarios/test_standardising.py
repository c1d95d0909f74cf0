"""Numbers that are no pictures: standardised by what all sites' training parts say together, and then they train."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from pfl_client import data
from pfl_client.data import scaling
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.config import settle
from pfl_common.spec.run import NOT_SUMMED, Model, RunSpec
from pfl_common.wire import convert
from pfl_deploy.simulation.simulate import simulate
from pfl_server.decisions.input_choice import Wish, explain
from pfl_server.decisions.model_choice import agree
from pfl_server.settings import ServerSettings
from tests.client.data.test_images import spec

RNG = np.random.default_rng(3)


def site(folder: Path, x: np.ndarray, *, test: np.ndarray | None = None) -> DataFolder:
    """A site with these samples, whose test part may differ."""
    folder.mkdir(parents=True)
    for part, own in (("train", x), ("test", x if test is None else test)):
        np.savez(folder / f"{part}.npz", x=own.astype(np.float32), y=np.arange(len(own)) % 2)
    return DataFolder(folder, folder.name)


def agreed(*folders: DataFolder, wish: Wish = Wish()) -> RunSpec:  # noqa: B008  # frozen
    """The run that these sites agree on."""
    return replace(spec(), model=agree({one.site: data.describe(one) for one in folders}, wish))


@pytest.mark.parametrize(
    ("shape", "axes", "features"),
    [((5,), (0,), 5), ((40, 3), (0, 1), 3), ((6, 5, 4), (0, 1, 2, 3), 1), ((4100,), (0, 1), 1)],
    ids=[
        "a table: each column",
        "a series: each channel",
        "anything else: one for all",
        "too many columns: one",
    ],
)
def test_each_feature_by_all_sites_training_parts(
    tmp_path: Path, shape: tuple[int, ...], axes: tuple[int, ...], features: int
) -> None:
    """Together the training samples have mean 0 and deviation 1; the test part is not looked at."""
    large = RNG.normal(4000, 800, (9, *shape))
    small = RNG.normal(2, 3, (21, *shape))
    folders = [site(tmp_path / "a", large, test=large * 1e6), site(tmp_path / "b", small)]
    run = agreed(*folders)
    assert features == len(run.model.mean)
    together = np.concatenate([data.load(folder, run).train.x.numpy() for folder in folders])
    np.testing.assert_allclose(together.mean(axes, dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(together.std(axes, dtype=np.float64), 1, rtol=1e-4)


def test_a_site_with_few_samples_does_not_tell_them(tmp_path: Path) -> None:
    """The sums of one row would be that row: it takes what the others have agreed on, and that is said."""
    lone, many = (
        site(tmp_path / "a", RNG.normal(0, 1, (4, 3))),
        site(tmp_path / "b", RNG.normal(9, 2, (20, 3))),
    )
    told = data.describe(lone)
    assert NOT_SUMMED == told.moments
    assert told == convert.hear_description(convert.say_description(told))
    run = agreed(lone, many)
    moments = data.describe(many).moments
    assert moments is not None
    assert pytest.approx(tuple(total / 20 for total in moments.sums)) == run.model.mean
    both = {"a": told, "b": data.describe(many)}
    words = explain(both, Wish(), shape=(3,), features=3)["standardise"]
    assert "parts of 1 sites (not of a: sums over fewer than 5 numbers would tell them)" in words
    assert () == agreed(lone).model.mean
    assert "none: no site has 5" in explain({"a": told}, Wish(), shape=(3,), features=0)["standardise"]


def test_pictures_with_negative_values_by_their_channels(tmp_path: Path) -> None:
    """Also where one site's are grey."""
    colour = RNG.normal((1, 50, -9), (1, 5, 2), (6, 9, 9, 3))
    folders = [site(tmp_path / "a", colour), site(tmp_path / "b", colour[..., 2:])]
    run = agreed(*folders)
    assert ("signed", 3, (3, 9, 9)) == (run.model.values, len(run.model.mean), run.model.shape)
    read = data.load(folders[0], run).train.x
    np.testing.assert_allclose(
        read[:, 2].numpy(),
        (colour[..., 2] - run.model.mean[2]) / run.model.deviation[2],
        rtol=1e-4,
        atol=1e-5,
    )


def test_nothing_is_done_where_that_is_asked(tmp_path: Path) -> None:
    """`--standardise none`."""
    x = RNG.normal(100, 9, (6, 4)).astype(np.float32)
    folder = site(tmp_path / "a", x)
    read = data.load(folder, agreed(folder, wish=Wish(standardise="none"))).train.x
    assert x.tolist() == read.tolist()


def test_sums_are_exact_where_numbers_are_large_and_differ_little() -> None:
    """Sums of squares alone would lose the difference."""
    x = (RNG.normal(0, 1, (1000, 1)) + 50_000).astype(np.float32)
    moments = scaling.sum_up(x, channels=False)
    variance = moments.squares[0] / moments.count - (moments.sums[0] / moments.count) ** 2
    assert pytest.approx(float(x.astype(np.float64).var()), rel=1e-5) == variance


def test_many_samples_are_summed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same result, up to the last digits."""
    x = RNG.normal(3, 2, (100, 4)).astype(np.float32)
    whole = scaling.sum_up(x, channels=False)
    monkeypatch.setattr(scaling, "BLOCK", 12)
    parts = scaling.sum_up(x, channels=False)
    np.testing.assert_allclose(whole.squares, parts.squares, rtol=1e-12)
    model = Model("mlp", (4,), ("a", "b"), mean=(1.0,) * 4, deviation=(2.0,) * 4)
    np.testing.assert_allclose(scaling.standardise(x, model, channels=False), (x - 1) / 2, rtol=1e-6)


def tables(folder: Path) -> list[Path]:
    """Three hospitals' unscaled tables of the same thirty features, from thousandths to thousands."""
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    for n, rows in enumerate(np.array_split(order, 3)):
        own = folder / f"hospital_{n}"
        own.mkdir(parents=True)
        cut = len(rows) * 3 // 4
        for part, places in (("train", rows[:cut]), ("test", rows[cut:])):
            np.savez(own / f"{part}.npz", x=x[places].astype(np.float32), y=y[places])
    return sorted(folder.iterdir())


def accuracy(folders: list[Path], out: Path, **words: object) -> float:
    """How a short run with the default step size ends, over all sites."""
    given = {"method": "fedavg", "sites": 3, "rounds": 8, "state": out / "coordinator", **words}
    result = simulate(settle(ServerSettings, given, what="test"), folders, out / "sites")
    return float(np.mean([curve.last("pre/test/combined") for curve in result.curves().values()]))


def test_unscaled_tables_train_at_the_default_step_size(tmp_path: Path) -> None:
    """They did not: one class for all, or a run that never ended."""
    folders = tables(tmp_path / "data")
    assert accuracy(folders, tmp_path / "agreed") > 0.85
