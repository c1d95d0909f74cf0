"""A model is found by its file, by each folder above it, and by the site's name."""

import os
from pathlib import Path

import pytest

from pfl_client.prediction.find_model import find_model
from pfl_common.errors import SettingError


def place_model(state: Path, site: str, run: str, *, age: int = 0) -> Path:
    """An empty file where a site keeps its model."""
    file = state / site / "runs" / run / "serving" / "serving.safetensors"
    file.parent.mkdir(parents=True)
    file.touch()
    os.utime(file, (1_000_000 - age, 1_000_000 - age))
    return file


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sites of this user keep their state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "pfl" / "sites"


def test_every_folder_above_it_leads_to_it(state: Path) -> None:
    """File, its folder, the run's, the site's, the federation's, the user's; and the site's name."""
    file = place_model(state / "federation", "hospital_a", "run-1")
    for above in (file, *list(file.parents)[:6]):
        if above.name != "runs":
            assert file == find_model(above).absolute(), above
    assert file == find_model("hospital_a")


def test_a_data_folder_of_the_sites_name_is_in_nobodys_way(state: Path, tmp_path: Path) -> None:
    """Where the user works it often lies beside."""
    file = place_model(state / "federation", "hospital_a", "run-1")
    (tmp_path / "hospital_a" / "train").mkdir(parents=True)
    assert file == find_model("hospital_a")


def test_the_last_run_counts(state: Path) -> None:
    """Whatever its name."""
    place_model(state, "hospital_a", "run-9", age=100)
    newest = place_model(state, "hospital_a", "run-1")
    assert newest == find_model(state / "hospital_a")


def test_several_sites_are_told(state: Path) -> None:
    """One of them has to be named."""
    for site in ("hospital_a", "hospital_b"):
        place_model(state, site, "run-1")
    with pytest.raises(SettingError, match="2 sites: hospital_a, hospital_b"):
        find_model(state)


def test_a_wrong_name_tells_the_nearest(state: Path) -> None:
    """And what else there is."""
    place_model(state / "federation", "hospital_a", "run-1")
    with pytest.raises(SettingError) as error:
        find_model("hospitl_a")
    assert "did you mean 'hospital_a'?" in str(error.value)


def test_the_best_lies_beside_the_last_of_the_same_run(state: Path) -> None:
    """By the site, its folder or the last model's file; an older run's is not taken for it."""
    older = place_model(state, "hospital_a", "run-1", age=100)
    older.with_name("best.safetensors").touch()
    last = place_model(state, "hospital_a", "run-2")
    for place in ("hospital_a", state / "hospital_a", last):
        with pytest.raises(SettingError, match="kept the last model alone"):
            find_model(place, "best")
    best = last.with_name("best.safetensors")
    best.touch()
    for place in ("hospital_a", state / "hospital_a", last.parent, last, best):
        assert best == find_model(place, "best")
    assert last == find_model("hospital_a")
    assert best == find_model(best)


def test_of_a_lone_file_there_is_no_best(tmp_path: Path) -> None:
    """It is the model that was named."""
    (tmp_path / "copy.safetensors").touch()
    with pytest.raises(SettingError, match="is one model"):
        find_model(tmp_path / "copy.safetensors", "best")
