"""Comparisons choose on validation data, report on test data, go on over failures, and can be broken off."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pfl_deploy.cli import main
from pfl_deploy.comparison.markdown import as_markdown
from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.plan import CHOOSING_SEED
from tests.deploy.comparison.given import PLAN, Played, by_rule, write_data, write_plan
from tests.words import check_clear, speak


def test_settings_are_chosen_on_validation_data(plan: Path, data: Path) -> None:
    """The step that is best on validation data is taken although it is the worse one on test data."""
    played = Played(plan, data)
    assert {"batch": 8, "lr": 0.3} == played.row("alone")["settings"]


def test_choosing_runs_are_no_reported_runs(plan: Path, data: Path) -> None:
    """They have a seed and a length of their own."""
    asked = Played(plan, data).asked
    choosing = [(name, CHOOSING_SEED, 1, lr) for name in ("alone", "together") for lr in (0.1, 0.3)]
    final = [(name, seed, 2, 0.3) for name in ("alone", "together") for seed in (0, 1)]
    assert choosing + final == asked


def test_nothing_is_chosen_where_nothing_is_to_choose(tmp_path: Path, data: Path) -> None:
    """A contestant with fixed settings is played with them, and no run is spent on choosing."""
    text = PLAN.replace("try = { lr = [0.1, 0.3] }", "set = { lr = 0.1 }")
    played = Played(write_plan(tmp_path, text), data)
    assert {0, 1} == {seed for _, seed, _, _ in played.asked}


def test_mean_and_deviation_over_seeds(plan: Path, data: Path) -> None:
    """Site a has 0.2 and 0.4: mean 0.3, sample deviation 0.1414; the mean over sites has 0.55 and 0.65."""
    of = Played(plan, data).row("alone")["test"]
    assert pytest.approx((0.3, 0.02**0.5)) == (of["a"]["mean"], of["a"]["std"])
    assert pytest.approx((0.9, 0.0)) == (of["b"]["mean"], of["b"]["std"])
    assert pytest.approx((0.6, 0.005**0.5)) == (of["mean"]["mean"], of["mean"]["std"])


def test_the_table_in_percent(plan: Path, data: Path) -> None:
    """One row a contestant, one column a site, the mean, the difference from the reference, what was chosen."""
    lines = as_markdown(Played(plan, data).found).splitlines()
    assert "|  | a | b | mean | against alone | settings |" == lines[0]
    assert "| alone | 30.0 ± 14.1 | 90.0 ± 0.0 | 60.0 ± 7.1 |  | lr 0.3 |" == lines[2]
    assert "| together | 40.0 ± 14.1 | 90.0 ± 0.0 | 65.0 ± 7.1 | +5.0 (+5.0 to +5.0) | lr 0.3 |" == lines[3]


def test_differences_are_told_against_the_reference(tmp_path: Path, data: Path) -> None:
    """The one that is named, not the first."""
    played = Played(write_plan(tmp_path, 'reference = "together"\n' + PLAN), data)
    against = played.row("alone")["against"]["test"]
    assert pytest.approx((-0.05, 2)) == (against["mean"], against["n"])
    assert {"0", "1"} == {str(seed) for seed in against["by_seed"]}
    assert "test" not in played.row("together")["against"]


def test_other_fixed_settings_of_the_optimiser_are_not_comparable(tmp_path: Path, data: Path) -> None:
    """No difference is written beside a momentum that the reference has not; both values stand in the row."""
    text = PLAN.replace('method = "fedavg"', 'method = "fedavg"\nset = { momentum = 0.25 }')
    found = Played(write_plan(tmp_path, text), data).found
    row = next(line for line in as_markdown(found).splitlines() if line.startswith("| together"))
    assert "not comparable: momentum 0.25, there " in row
    assert "+5.0" not in row


def test_steps_chosen_from_other_values_are_not_comparable(tmp_path: Path, data: Path) -> None:
    """The method with the wider grid had the better chance."""
    text = PLAN.replace("try = { lr = [0.1, 0.3] }", "try = { lr = [0.1, 0.2] }", 1)
    row = as_markdown(Played(write_plan(tmp_path, text), data).found).splitlines()[3]
    assert "not comparable: lr chosen from 0.1, 0.3, there from 0.1, 0.2" in row


def test_an_encoding_of_its_own_is_named_and_compared(tmp_path: Path, data: Path) -> None:
    """Its runs are asked for with it, those of the others without; the difference is told, and what differs."""
    crossed: dict[str, set[str]] = {"local": set(), "fedavg": set()}

    def rule(server: Mapping[str, Any]) -> Outcome:
        crossed[server["method"]].add(server.get("encoding", "none named"))
        return by_rule(server)

    text = PLAN.replace('method = "fedavg"', 'method = "fedavg"\nencoding = "bf16"')
    row = as_markdown(Played(write_plan(tmp_path, text), data, rule).found).splitlines()[3]
    assert {"local": {"none named"}, "fedavg": {"bf16"}} == crossed
    assert "| +5.0 (+5.0 to +5.0); encoding bf16, there float32 |" in row


def test_a_downlink_of_its_own_is_named(tmp_path: Path, data: Path) -> None:
    """Asked for with the encoding that it belongs to."""
    crossed = set()

    def rule(server: Mapping[str, Any]) -> Outcome:
        crossed.add((server["method"], server.get("downlink", "none named")))
        return by_rule(server)

    words = 'method = "fedavg"\nencoding = "int8"\ndownlink = "delta"'
    text = PLAN.replace('method = "fedavg"', words)
    row = as_markdown(Played(write_plan(tmp_path, text), data, rule).found).splitlines()[3]
    assert {("local", "none named"), ("fedavg", "delta")} == crossed
    assert "encoding int8 with changes down, there float32 |" in row


def diverging(server: Mapping[str, Any]) -> Outcome:
    """Steps from 0.3 on do not train with FedAvg."""
    if server["method"] == "fedavg" and server["set"]["lr"] >= 0.3:
        return Outcome(failed="round 1: training diverged at 2 of 2 sites")
    return by_rule(server)


def test_a_setting_that_diverges_is_left_out(plan: Path, data: Path) -> None:
    """The comparison goes on with the others, and says so."""
    played = Played(plan, data, diverging)
    row = played.row("together")
    assert (0.1, None) == (row["settings"]["lr"], row["failed"])
    assert [None, "failed: training diverged (lr 0.3)"] == [tried["failed"] for tried in row["tried"]]
    assert re.search(r"together: 1 of 2 .*training diverged \(lr 0\.3\)", as_markdown(played.found))
    assert re.search(r"together, .*lr 0\.3: .*training diverged", played.said)


def test_a_contestant_that_diverges_in_every_setting(tmp_path: Path, data: Path) -> None:
    """It has no result, which its row says; no reported run is spent on it; the others have theirs."""
    text = PLAN.replace('"fedavg"\ntry = { lr = [0.1, 0.3] }', '"fedavg"\ntry = { lr = [0.5, 100.0] }')
    played = Played(write_plan(tmp_path, text), data, diverging)
    words = "failed: no setting could be trained: training diverged (lr 0.5); training diverged (lr 100)"
    assert words == played.row("together")["failed"]
    assert f"| {words} |" in as_markdown(played.found)
    assert 0.6 == pytest.approx(played.row("alone")["test"]["mean"]["mean"])
    assert 6 == len(played.asked)
    assert "[6/6]" in played.said


def test_a_reported_run_that_diverges(tmp_path: Path, data: Path) -> None:
    """A mean over the seeds that happened to train is none; neither is a difference."""

    def rule(server: Mapping[str, Any]) -> Outcome:
        if server["method"] == "fedavg" and server["seed"] == 1:
            return Outcome(failed="training diverged")
        return by_rule(server)

    played = Played(write_plan(tmp_path), data, rule)
    row = played.row("together")
    assert "failed: training diverged (lr 0.3, 1 of 2 seeds)" == row["failed"]
    assert {} == row["test"]
    assert "test" not in row["against"]
    assert "| failed: training diverged (lr 0.3, 1 of 2 seeds) |" in as_markdown(played.found)


@pytest.mark.parametrize(
    ("method", "lrs", "words"),
    [
        ("local", "0.1, 0.3", "lr 0.3 is the largest tried: widen it"),
        ("fedavg", "0.1, 0.2, 0.3", ""),
        ("local", "0.3, 0.3000001", "lr 0.3000001 is the largest tried: widen it"),
    ],
)
def test_a_choice_at_the_edge_of_its_grid_is_said(
    tmp_path: Path, data: Path, method: str, lrs: str, words: str
) -> None:
    """Unless what lies beyond was tried, and failed."""
    text = PLAN.replace("try = { lr = [0.1, 0.3] }", f"try = {{ lr = [{lrs}] }}")
    told = as_markdown(Played(write_plan(tmp_path, text), data, diverging).found)
    name = "alone" if method == "local" else "together"
    edges = [
        line.removeprefix(f"- {name}: ").rstrip(".") for line in told.splitlines() if f"- {name}: lr" in line
    ]
    assert ([words.replace("0.3000001", "0.3")] if words else []) == edges


def test_a_value_that_no_other_can_exceed_lies_on_no_edge(tmp_path: Path, data: Path) -> None:
    """A share of 1 cannot be made larger."""
    text = PLAN.replace(
        '"local"\ntry = { lr = [0.1, 0.3] }', '"fedcac"\ntry = { tau = [1.0, 0.5], lr = [0.3] }'
    )
    flat = Outcome({"validation": {"a": 0.5}, "test": {"a": 0.5}})
    row = Played(write_plan(tmp_path, text), data, lambda server: flat).row("alone")
    assert (1.0, []) == (row["settings"]["tau"], row["edges"])


def test_shifted_test_data_are_reported_beside_the_others(plan: Path, data: Path) -> None:
    """Under plain names, each with its own differences."""

    def rule(server: Mapping[str, Any]) -> Outcome:
        plain = by_rule(server)
        return Outcome({**plain.accuracy, "shifted": {"a": 0.25, "b": 0.25}}, plain.curve)

    played = Played(plan, data, rule)
    told = as_markdown(played.found)
    assert "Test data\n" in told
    assert "Shifted test data\n" in told
    assert "| alone | 25.0 ± 0.0 | 25.0 ± 0.0 | 25.0 ± 0.0 |" in told
    assert 0.0 == played.row("together")["against"]["shifted"]["mean"]


def test_what_choosing_showed_on_test_data_stays_unsaid(plan: Path, data: Path) -> None:
    """Nobody shall be led by it."""
    lines = [line for line in Played(plan, data).said.splitlines() if "choosing" in line]
    assert 4 == len(lines)
    assert [] == [line for line in lines if "test" in line]


def test_real_runs_in_processes_of_their_own(tmp_path: Path) -> None:
    """From the words to the table; the second time everything is known and nothing is run."""
    text = PLAN.replace("seeds = [0, 1]", "seeds = [3]").replace("[0.1, 0.3]", "[0.1]")
    words = ["compare", write_plan(tmp_path, text), "--data", write_data(tmp_path / "data")]
    words += [
        "--keep",
        tmp_path / "kept.jsonl",
        "--out",
        tmp_path / "out.json",
        "--plots",
        tmp_path / "plots",
    ]
    first = speak(main, *words)
    check_clear(first, 0, "[2/2]", "| together |", "2 runs, 0 of them taken from the kept file")
    told = json.loads((tmp_path / "out.json").read_text())
    assert {"a", "b", "mean"} == told["contestants"]["alone"]["test"].keys()
    assert {"a", "b"} == told["data"].keys()
    assert (tmp_path / "plots" / "accuracy-test.png").exists()

    again = speak(main, *words, "--json")
    check_clear(again, 0, "2 results of these data and this code", "from the file; none left")
    assert told["contestants"] == json.loads(again.out)["contestants"]


def test_a_comparison_in_which_nothing_trains(tmp_path: Path, data: Path) -> None:
    """It ends with 5, and says of each contestant why."""
    text = PLAN.replace("try = { lr = [0.1, 0.3] }", "set = { lr = 1e6 }").replace(
        "seeds = [0, 1]", "seeds = [0]"
    )
    said = speak(main, "compare", write_plan(tmp_path, text), "--data", data)
    check_clear(
        said, 5, "no contestant could be trained to the end", "together: training diverged (lr 1e+06)"
    )


def test_seeds_that_fail_for_both_make_no_difference(tmp_path: Path, data: Path) -> None:
    """Over the seeds that are left a difference would be one of fewer than were asked for."""
    text = PLAN.replace("seeds = [0, 1]", "seeds = [0, 1, 2]")

    def rule(server: Mapping[str, Any]) -> Outcome:
        return Outcome(failed="training diverged") if server["seed"] == 1 else by_rule(server)

    assert "test" not in Played(write_plan(tmp_path, text), data, rule).row("together")["against"]
