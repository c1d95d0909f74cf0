"""Windows of sensor channels and rows of tables: how they lie, what is said of them, on one scale at all sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import RunSpec
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import spec
from tests.client.data.written import write_table, write_windows


def site(folder: Path) -> DataFolder:
    return DataFolder(folder, folder.name)


def agreed(*folders: DataFolder, wish: Wish = Wish()) -> RunSpec:  # noqa: B008  # frozen
    """The run that these sites agree on."""
    return replace(spec(), model=agree({one.site: data.describe(one) for one in folders}, wish))


def raw(folder: DataFolder) -> np.ndarray:
    """The training samples as they are stored."""
    with np.load(folder.path / "train.npz") as arrays:
        return np.asarray(arrays["x"])


@pytest.mark.parametrize("layout", ["time_channels", "channels_time", "reference", None])
def test_where_the_channels_lie(tmp_path: Path, layout: str | None) -> None:
    """Turned, as they are, or (to reproduce a published program) taken for what they are not; else by their length."""
    said = {"kind": "windows", **({"layout": layout} if layout else {})}
    folder = site(write_windows(tmp_path / "a", said=said))
    x = raw(folder)
    expected = {"channels_time": x, "reference": x.reshape(24, 3, 32)}.get(layout or "", x.transpose(0, 2, 1))
    run = agreed(folder, wish=Wish(standardise="none"))
    assert ("windows", expected.shape[1:]) == (run.model.kind, run.model.shape)
    np.testing.assert_array_equal(expected, data.load(folder, run).train.x.numpy())


def test_a_reference_run_mixes_channels_and_time(tmp_path: Path) -> None:
    """By hand: 9 steps of 2 channels, reshaped, give a first channel of both channels' first numbers."""
    folder = site(write_windows(tmp_path / "a", said={"kind": "windows", "layout": "reference"}))
    x = np.arange(18, dtype=np.float32).reshape(1, 9, 2).repeat(6, 0)
    np.savez(folder.path / "train.npz", x=x, y=np.arange(6) % 2)
    (folder.path / "test.npz").unlink()
    read = data.load(folder, agreed(folder, wish=Wish(standardise="none"))).train.x
    assert list(range(9)) == read[0, 0].int().tolist()


def test_windows_are_standardised_by_their_channels(tmp_path: Path) -> None:
    """Over the training parts of all sites, whatever the layout of each."""
    folders = [site(write_windows(tmp_path / "a")), site(write_windows(tmp_path / "b", seed=1))]
    run = agreed(*folders)
    assert 3 == len(run.model.mean)
    assert run.model.backbone == "har_cnn"
    together = np.concatenate([data.load(folder, run).train.x.numpy() for folder in folders])
    np.testing.assert_allclose(together.mean((0, 2), dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(together.std((0, 2), dtype=np.float64), 1, rtol=1e-4)


def test_short_windows_go_into_a_network_that_takes_them(tmp_path: Path) -> None:
    """The network for windows shortens them more than they are long."""
    assert "mlp" == agreed(site(write_windows(tmp_path / "a", length=27))).model.backbone


@pytest.mark.parametrize(
    ("shape", "said", "seen"),
    [
        ((4, 9, 9), {"kind": "windows"}, "which axis is time cannot be told"),
        ((4, 9), {"kind": "windows"}, "is float64(4, 9), and the data are windows"),
        (
            (4, 9, 8),
            {"kind": "windows", "layout": "channels_last"},
            "says 'channels_last' for 'layout' of windows",
        ),
        (
            (4, 9, 8),
            {"kind": "image", "layout": "time_channels"},
            "says 'time_channels' for 'layout' of image",
        ),
        ((4, 9, 8), {"kind": "windows", "columns": ["a"]}, "says 'columns' of data of the kind 'windows'"),
        ((4, 3), {"kind": "table", "layout": "time_channels"}, "says 'layout' of data of the kind 'table'"),
        ((4, 3), {"columns": ["a", "b"]}, "names 2 columns, x of train.npz has 3"),
        ((4, 3), {"columns": ["a", "b", "a"]}, "names a column twice"),
        ((4, 3), {"columns": "abc"}, "for 'columns'"),
        ((4, 3, 2), {"kind": "table"}, "is float64(4, 3, 2), and the data are table"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, shape: tuple[int, ...], said: object, seen: str
) -> None:
    """In words that say what is expected and what to do."""
    folder = site(write_windows(tmp_path / "a", said=said))
    np.savez(folder.path / "train.npz", x=np.ones(shape), y=np.arange(4) % 2)
    (folder.path / "test.npz").unlink()
    with pytest.raises(DataError) as error:
        data.describe(folder)
    assert seen in str(error.value)
    assert error.value.expected
    assert error.value.advice


def test_a_table_is_recognised_and_its_columns_are_told(tmp_path: Path) -> None:
    """Standardised by column, as plain numbers are."""
    plain, named = (
        site(write_table(tmp_path / "a")),
        site(write_table(tmp_path / "b", columns=("age", "weight", "pulse"), seed=1)),
    )
    assert ("table", ()) == ((told := data.describe(plain)).kind, told.columns)
    run = agreed(plain, named)
    assert ("table", "mlp", ("age", "weight", "pulse"), 3) == (
        run.model.kind,
        run.model.backbone,
        run.model.columns,
        len(run.model.mean),
    )
    together = np.concatenate([data.load(folder, run).train.x.numpy() for folder in (plain, named)])
    np.testing.assert_allclose(together.mean(0, dtype=np.float64), 0, atol=1e-5)
    with capture_logs() as lines:
        data.describe(named)
    assert "the names of 3 columns" in [line.get("told_of_columns") for line in lines]
    assert "3 columns" in data.look_through(plain.path).recognised


def test_whole_numbers_in_a_table_are_declared(tmp_path: Path) -> None:
    """Without a word they could be texts."""
    folder = site(write_table(tmp_path / "a"))
    np.savez(folder.path / "train.npz", x=np.ones((4, 3), int), y=np.arange(4) % 2)
    (folder.path / "test.npz").unlink()
    with pytest.raises(DataError) as error:
        data.describe(folder)
    assert '{"kind": "table"}' in error.value.advice
    (folder.path / "data.json").write_text('{"kind": "table"}')
    assert "table" == data.describe(folder).kind


def test_a_window_that_is_not_finite_is_named(tmp_path: Path) -> None:
    """As in any other numbers."""
    folder = site(write_windows(tmp_path / "a"))
    x = raw(folder)
    x[5, 2, 1] = np.nan
    np.savez(folder.path / "train.npz", x=x, y=np.arange(24) % 2)
    with pytest.raises(DataError, match=r"NaN or infinity in 1 of 24 .*sample 6"):
        data.describe(folder)
