"""Comparisons choose on validation data, report on test data, and can be broken off."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pfl_common.errors import DataError, SettingError
from pfl_deploy import compare as comparing
from pfl_deploy.cli import main
from pfl_deploy.compare import CHOOSING_SEED, Accuracies, Comparison, Trial, Trials, compare
from pfl_deploy.showing import as_markdown
from pfl_server.settings import ServerSettings
from tests.deploy.processes import write_site
from tests.words import check_clear, speak

PLAN = """
rounds = 2
choosing_rounds = 1
seeds = [0, 1]
[common]
backbone = "mlp"
[contestants.alone]
method = "local"
set = { batch = 8 }
try = { lr = [0.1, 0.3] }
[contestants.together]
method = "fedavg"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Comparison:
    """Two contestants, one of which has something to choose."""
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    return Comparison.read(file)


class Scripted(Trials):
    """Results by rule instead of by training: a larger step is better on validation and worse on test data."""

    def __init__(self) -> None:
        self.asked: list[Trial] = []

    def run(self, trials: Sequence[Trial], *, jobs: int) -> list[Accuracies]:
        self.asked += trials
        return [self._result(trial) for trial in trials]

    def _result(self, trial: Trial) -> Accuracies:
        lr = float(str(trial.settings.get("lr", 0.0)))
        return {
            "validation": {"a": lr, "b": lr},
            "test": {"a": 0.5 - lr + 0.2 * trial.seed, "b": 0.9},
        }


def test_settings_are_chosen_on_validation_data(plan: Comparison) -> None:
    """The step that is best on validation data is taken although it is the worse one on test data."""
    runner = Scripted()
    table = compare(plan, runner, jobs=1)
    assert {"batch": 8, "lr": 0.3} == table["alone"]["settings"]
    assert {} == table["together"]["settings"]


def test_nothing_is_chosen_where_nothing_is_to_choose(plan: Comparison) -> None:
    """Choosing runs have a seed and a length of their own; the reported runs never share that seed."""
    runner = Scripted()
    compare(plan, runner, jobs=1)
    asked = [(t.contestant.name, t.seed, t.rounds, t.settings.get("lr")) for t in runner.asked]
    choosing = [("alone", CHOOSING_SEED, 1, 0.1), ("alone", CHOOSING_SEED, 1, 0.3)]
    final = [("alone", 0, 2, 0.3), ("alone", 1, 2, 0.3), ("together", 0, 2, None), ("together", 1, 2, None)]
    assert choosing + final == asked


def test_mean_and_deviation_over_seeds(plan: Comparison) -> None:
    """Site a has 0.2 and 0.4: mean 0.3, sample deviation 0.1414; the mean over sites has 0.55 and 0.65."""
    of = compare(plan, Scripted(), jobs=1)["alone"]["test"]
    assert pytest.approx((0.3, 0.02**0.5)) == (of["a"]["mean"], of["a"]["std"])
    assert pytest.approx((0.9, 0.0)) == (of["b"]["mean"], of["b"]["std"])
    assert pytest.approx((0.6, 0.005**0.5)) == (of["mean"]["mean"], of["mean"]["std"])


def test_the_table_in_percent(plan: Comparison) -> None:
    """One row a contestant, one column a site, and the mean."""
    lines = as_markdown(compare(plan, Scripted(), jobs=1)).splitlines()
    assert "| | a | b | mean |" == lines[0]
    assert "| alone | 30.0 ± 14.1 | 90.0 ± 0.0 | 60.0 ± 7.1 |" == lines[2]


@pytest.mark.parametrize("text", ["rounds = 1", "rounds = ", "[contestants.a]\nset = {}"])
def test_a_file_that_is_no_comparison(tmp_path: Path, text: str) -> None:
    """What is missing is said."""
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with pytest.raises(SettingError, match="is no comparison"):
        Comparison.read(file)


def test_a_comparison_that_is_not_there(tmp_path: Path) -> None:
    """Which file is looked for is said."""
    with pytest.raises(SettingError, match=r"x\.toml cannot be read: No such file"):
        Comparison.read(tmp_path / "x.toml")


def test_what_a_worker_says_a_person_can_mend(plan: Comparison, tmp_path: Path) -> None:
    """Its words and its exit code are those of a single run, with the contestant before them."""
    trial = Trial(plan.contestants[1], {}, 0, 1)
    with pytest.raises(DataError) as caught:
        Trials(plan.common, tmp_path / "nix", kept=None, tell=print).run([trial], jobs=1)
    assert f"together: {tmp_path / 'nix'} holds no data folders" == caught.value.seen
    assert "one folder per site" in caught.value.expected


@pytest.mark.parametrize("option", ["--out", "--keep"])
def test_a_result_without_a_place(tmp_path: Path, option: str) -> None:
    """It is known before the first run."""
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    said = speak(main, "compare", file, "--data", tmp_path, option, tmp_path / "nix" / "table.json")
    check_clear(said, 2, f"{option} {tmp_path / 'nix' / 'table.json'}", "which is no folder")


def test_a_comparison_goes_on_where_it_was_broken_off(plan: Comparison, tmp_path: Path) -> None:
    """Real runs in processes of their own; the second time everything is known and nothing is run."""
    data = tmp_path / "data"
    for seed, name in enumerate(("a", "b")):
        folder = write_site(data / name, samples=16, size=8, classes=("x", "y"), seed=seed)
        (folder / "validation.npz").write_bytes((folder / "test.npz").read_bytes())
    kept, told = tmp_path / "kept.jsonl", []
    trials = [Trial(c, settings, 3, 1) for c in plan.contestants for settings in c.candidates()]
    first = Trials(plan.common, data, kept=kept, tell=told.append).run(trials, jobs=2)
    assert 3 == len(first) == len(told) == len(kept.read_text().splitlines())
    assert {"a", "b"} == first[0]["test"].keys() == first[0]["validation"].keys()

    changed = [json.loads(line) for line in kept.read_text().splitlines()]
    changed[0]["result"]["test"]["a"] = 0.125
    kept.write_text("".join(json.dumps(line) + "\n" for line in changed))
    again = Trials(plan.common, data, kept=kept, tell=told.append).run(trials, jobs=2)
    assert 0.125 in [result["test"]["a"] for result in again]
    assert 3 == len(kept.read_text().splitlines())


def test_what_choosing_showed_on_test_data_stays_unsaid(plan: Comparison, tmp_path: Path) -> None:
    """Nobody shall be led by it."""
    kept, told = tmp_path / "kept.jsonl", []
    contestant = plan.contestants[1]
    trials = [Trial(contestant, {}, seed, 1) for seed in (CHOOSING_SEED, 0)]
    result = {"validation": {"a": 0.5}, "test": {"a": 0.75}}
    lines = [json.dumps({"request": t.request(plan.common, tmp_path), "result": result}) for t in trials]
    kept.write_text("\n".join(lines) + "\n")
    Trials(plan.common, tmp_path, kept=kept, tell=told.append).run(trials, jobs=1)
    assert [False, True] == ["0.75" in line for line in told]


@pytest.mark.parametrize(("common", "quorum"), [({}, 1.0), ({"quorum": 0.5}, 0.5)])
def test_every_site_counts_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, common: dict[str, float], quorum: float
) -> None:
    """A busy machine must not change who is counted; a comparison that wants to lose sites says so."""
    seen = []

    def play(settings: ServerSettings, folders: object, out: Path) -> None:
        seen.append(settings.quorum)
        raise InterruptedError

    monkeypatch.setattr(comparing, "simulate", play)
    for site in ("a", "b"):
        write_site(tmp_path / site, samples=6)
    request = json.dumps({"data": str(tmp_path), "server": {"method": "fedavg", "rounds": 1, **common}})
    with pytest.raises(InterruptedError):
        comparing.run_request(request)
    assert [quorum] == seen
