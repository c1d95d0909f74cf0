"""Everything that can be known is known before anything is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pfl_client import data as site_data
from pfl_client.trainer_process.api import DataFolder
from pfl_common import methods
from pfl_common.errors import SettingError, UserError
from pfl_common.spec.run import RunSpec
from pfl_deploy.cli import main
from pfl_deploy.comparison import checks, worker
from pfl_deploy.comparison.checks import check
from pfl_deploy.comparison.plan import Comparison
from tests.deploy.comparison.given import PLAN, write_data, write_plan
from tests.words import check_clear, speak


@pytest.mark.parametrize("option", ["--out", "--keep"])
def test_a_result_without_a_place(tmp_path: Path, option: str) -> None:
    """It is known before the first run."""
    said = speak(
        main, "compare", write_plan(tmp_path), "--data", tmp_path, option, tmp_path / "nix" / "table"
    )
    check_clear(said, 2, f"{option} {tmp_path / 'nix' / 'table'}", "which is no folder")


def test_charts_without_a_place(tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "taken").write_text("")
    said = speak(
        main, "compare", write_plan(tmp_path), "--data", tmp_path, "--plots", tmp_path / "taken" / "x"
    )
    check_clear(said, 2, "--plots", "cannot be made")


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("[0.1, 0.3] }\n", '[0.1, "x"] }\n', ("alone: local: setting 'lr' is 'x'",)),
        (
            '"fedavg"\ntry = { lr',
            '"fedcac"\ntry = { tau = [0.5, 7], lr',
            ("together: fedcac: setting 'tau' is 7",),
        ),
        ('"fedavg"\ntry = { lr', '"fedavg"\ntry = { lt', ("together: fedavg has no setting 'lt'", "'lr'")),
        ('backbone = "mlp"', 'backbone = "mlpp"', ("no backbone 'mlpp'", "'mlp'")),
        ('backbone = "mlp"', 'backbone = "mlp"\nquorum = 7', ("'quorum' is 7",)),
        (
            'backbone = "mlp"',
            'backbone = "mlp"\nparticipation = "a,c"',
            ("participation names 'c'", "known: a, b"),
        ),
    ],
)
def test_settings_of_the_second_contestant_are_checked_before_the_first_trains(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, was: str, now: str, words: tuple[str, ...]
) -> None:
    """Every value to try of every contestant: the one that cannot be is named, and nothing was run."""
    played: list[object] = []
    monkeypatch.setattr(worker.subprocess, "run", lambda *words, **named: played.append(words))
    place = PLAN.replace(was, now, 1)
    assert place != PLAN
    said = speak(main, "compare", write_plan(tmp_path, place), "--data", data)
    check_clear(said, 2, *words)
    assert [] == played


def change_classes(site: Path) -> None:
    """Another kind of data."""
    shutil.rmtree(site)
    for part in ("train", "test"):
        site.mkdir(exist_ok=True)
        np.savez(site / f"{part}.npz", x=np.zeros((8, 5), np.float32), y=np.arange(8) % 2)


def remove_test(site: Path) -> None:
    """Nothing to be measured on."""
    (site / "test.npz").unlink()


def tear(site: Path) -> None:
    """Half a file."""
    content = (site / "train.npz").read_bytes()
    (site / "train.npz").write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change_classes, "different kinds of data"),
        (remove_test, "b has no test samples"),
        (tear, "b: train.npz cannot be read as arrays"),
    ],
)
def test_every_sites_data_are_looked_at(tmp_path: Path, data: Path, plan: Path, spoil, words: str) -> None:
    """Also those of the last one, which is named."""
    spoil(data / "b")
    with pytest.raises(UserError) as caught:
        check(Comparison.read(plan), data)
    assert words in caught.value.seen


def test_a_validation_part_is_made_where_there_is_none(tmp_path: Path, plan: Path) -> None:
    """How many samples are held back is told, also that no run trains on them; the data folder stays as it is."""
    data = write_data(tmp_path / "data", validation=False)
    shutil.copy(data / "b" / "test.npz", data / "b" / "validation.npz")
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    checked = check(Comparison.read(plan), data)
    assert {"a": (4, 16)} == {site: (held.back, held.of) for site, held in checked.held.items()}
    assert 0.2 == checked.circumstances.hold_out
    for fact in ("1 of 2 sites", "20 %", "out of training in all runs", "a 4 of 16"):
        assert fact in checked.say_held()
    assert before == {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}


def test_nothing_is_held_back_where_nothing_is_to_choose(tmp_path: Path) -> None:
    """Then all training samples train."""
    text = PLAN.replace("try = { lr = [0.1, 0.3] }", "")
    data = write_data(tmp_path / "data", validation=False)
    checked = check(Comparison.read(write_plan(tmp_path, text)), data)
    assert ({}, 0.0) == (checked.held, checked.circumstances.hold_out)


def test_a_comparison_without_a_validation_part(tmp_path: Path) -> None:
    """From the words to the table, with runs in processes of their own."""
    text = PLAN.replace("seeds = [0, 1]", "seeds = [3]").replace("rounds = 2", "rounds = 1", 1)
    text = text.partition("[contestants.together]")[0]
    data = write_data(tmp_path / "data", validation=False)
    said = speak(main, "compare", write_plan(tmp_path, text), "--data", data, "--json")
    check_clear(said, 0, "no validation part at 2 of 2 sites", "alone, choosing, lr 0.3: validation")
    told = json.loads(said.out)
    assert {"share": 0.2, "sites": {"a": {"back": 4, "of": 16}, "b": {"back": 4, "of": 16}}} == told[
        "held_back"
    ]


def test_held_back_samples_are_the_same_for_every_seed(tmp_path: Path, plan: Path) -> None:
    """Whatever the run's seed and method; each class gives its share."""
    data = write_data(tmp_path / "data", validation=False)
    specs = check(Comparison.read(plan), data).specs
    folder = DataFolder(data / "a", "a", hold_out=0.25)
    loaded = [site_data.load(folder, spec) for spec in specs.values()]
    first, second = (local.validation for local in loaded)
    assert first.x.equal(second.x)
    assert [2, 2] == first.y.bincount().tolist()
    assert [6, 6] == loaded[0].train.y.bincount().tolist()


def test_every_value_to_try_is_built(data: Path, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What settings alone do not show, the network does: before anything is trained, and for the last value too."""
    build = methods.build_participant

    def refuse(spec: RunSpec) -> object:
        if spec.settings["lr"] == 0.3 and spec.method == "fedavg":
            raise SettingError("this cannot be built")
        return build(spec)

    monkeypatch.setattr(checks.methods, "build_participant", refuse)
    with pytest.raises(SettingError) as caught:
        check(Comparison.read(plan), data)
    assert "together: this cannot be built" == caught.value.seen
