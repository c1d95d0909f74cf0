"""The demo's methods are played under equal conditions: a page that compares them may say above and below."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.app.config import layered, settle
from pfl_common.errors import DataError, StateError
from pfl_deploy.demo.federation import _server_words
from pfl_deploy.demo.plan import CONTESTANTS, DUALFED, PATIENT, Contestant, Plan, choose_folder
from pfl_server.settings import HERE_ONLY, ServerSettings


def list_conditions(contestant: Contestant, plan: Plan) -> dict[str, str]:
    """What the command line of a method says beside the method and its settings."""
    words = contestant.words(plan)
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    return {name: value for name, value in pairs.items() if name not in ("--method", "--set")}


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda contestant: contestant.method)
def test_all_methods_have_the_same_conditions(contestant: Contestant, tmp_path: Path) -> None:
    """Rounds, seed, network, and one file that says how long anybody is waited for."""
    plan = Plan(tmp_path, tmp_path / "out", 3)
    assert list_conditions(DUALFED, plan) == list_conditions(contestant, plan)
    assert str(plan.conditions) == list_conditions(contestant, plan)["--config"]


def test_every_update_counts(tmp_path: Path) -> None:
    """The reader of the file waits for all sites, a slow one too."""
    file = tmp_path / "conditions.toml"
    file.write_text(PATIENT)
    settings = settle(ServerSettings, layered(ServerSettings, {}, file, prefix="NONE_"), what="a test")
    assert (1.0, 120.0) == (settings.quorum, settings.lease_seconds)


def test_the_real_federation_adds_no_condition(tmp_path: Path) -> None:
    """Only its places: ports and folders."""
    for site in ("a", "b"):
        (tmp_path / "data" / site).mkdir(parents=True)
    plan = Plan(tmp_path / "data", tmp_path / "out", 3)
    words, common = list(map(str, _server_words(plan))), DUALFED.words(plan)
    added = words[len(common) :: 2]
    assert list(common) == words[: len(common)]
    assert {name.removeprefix("--").replace("-", "_") for name in added} <= {*HERE_ONLY, "sites"}


def test_one_folder_is_no_federation(tmp_path: Path) -> None:
    """Said with what is expected; files beside the folders are no sites."""
    (tmp_path / "a").mkdir()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match="holds 1 data folders"):
        _ = Plan(tmp_path, tmp_path).sites
    (tmp_path / "b").mkdir()
    assert ["a", "b"] == [path.name for path in Plan(tmp_path, tmp_path).sites]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A folder with anything in it is refused; an empty or a new one is taken."""
    assert tmp_path / "new" == choose_folder(tmp_path / "new")
    assert tmp_path / "new" == choose_folder(tmp_path / "new")
    (tmp_path / "new" / "report.html").touch()
    with pytest.raises(StateError, match="is not empty"):
        choose_folder(tmp_path / "new")
