"""Curves read from histories, bytes from specifications, and the words that say who leads."""

import io
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from pfl_common.spec.run import Model, RunSpec
from pfl_deploy.demo import findings
from pfl_deploy.demo.findings import Findings, Method, read_sent_names
from pfl_deploy.demo.following import Follower, Trained
from pfl_deploy.demo.live import Board
from pfl_deploy.demo.plan import DUALFED, FEDAVG, SAMPLE, Plan
from pfl_deploy.demo.report import verdict
from pfl_deploy.report.charts import svg
from pfl_deploy.report.charts.select import curves_over_rounds
from pfl_deploy.report.sources.sites import Curve, read_numbers
from pfl_server.store.comparable import Differences


def write(folder: Path, *lines: tuple[str, dict[str, float]]) -> Path:
    """A history of these tasks and accuracies."""
    folder.mkdir(exist_ok=True)
    entries = [
        {"task": task, "scores": {n: {"accuracy": v} for n, v in scores.items()}, "metrics": {}}
        for task, scores in lines
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder


def read_curve(folder: Path) -> Curve:
    """What the demo shows of a site."""
    return read_numbers(folder).predicting("test")


def test_a_measurement_before_training_shows_the_round_before(tmp_path: Path) -> None:
    """Measured with the download of round 2: what round 1 reached. The last one shows the last round."""
    folder = write(
        tmp_path,
        (
            "000001-1-train",
            {"pre/test/combined": 0.1, "pre/validation/combined": 0.9, "pre/test/global": 0.8},
        ),
        ("000002-1-train", {"pre/test/combined": 0.2}),
        ("000002-2-train", {"pre/test/combined": 0.3}),
        ("000002-1-finish", {"pre/test/combined": 0.4}),
    )
    assert {0: 0.1, 1: 0.3, 2: 0.4} == read_curve(folder)


def test_a_measurement_after_training_shows_its_own_round(tmp_path: Path) -> None:
    """As local training measures."""
    folder = write(
        tmp_path,
        ("000001-1-train", {"post/test/combined": 0.1}),
        ("000002-1-train", {"post/test/combined": 0.2}),
        ("000002-1-finish", {"pre/test/combined": 0.2}),
    )
    assert {1: 0.1, 2: 0.2} == read_curve(folder)


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    """A site writes while the demo reads."""
    folder = write(tmp_path, ("000001-1-train", {"pre/test/combined": 0.5}))
    with (folder / "history.jsonl").open("a") as book:
        book.write('{"task": "0000')
    assert {0: 0.5} == read_curve(folder)
    assert {} == read_curve(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("histories", "words"),
    [
        ({"a": [("000001-1-train", 0.1)], "b": [("000001-1-train", 0.2)]}, "round 1 of 9, 1.5 s"),
        (
            {"a": [("000001-1-train", 0.1), ("000002-1-train", 0.3)], "b": [("000002-1-train", 0.4)]},
            "round 1 of 9, 1.5 s; accuracy after round 1: a 30.0  b 40.0",
        ),
        (
            {"a": [("000002-1-train", 0.3), ("000003-1-train", 0.7)], "b": [("000002-1-train", 0.4)]},
            "round 1 of 9, 1.5 s; accuracy after round 1: a 30.0  b 40.0",
        ),
    ],
    ids=["before the first round", "a round later", "one site is ahead"],
)
def test_a_round_is_told_with_what_was_measured_when(
    tmp_path: Path, histories: dict[str, list[tuple[str, float]]], words: str
) -> None:
    """The accuracy in a line is that after the round it names, of all sites, and the log's fields do not mislead."""
    folders = {
        site: write(tmp_path / site, *((task, {"pre/test/combined": value}) for task, value in lines))
        for site, lines in histories.items()
    }
    heard = io.StringIO()
    board = Board(Console(file=heard, width=200), list(folders), ["DualFed"])
    plan = Plan(tmp_path, tmp_path, rounds=9)
    follower = Follower(DUALFED, plan, board, lambda: folders)
    follower.hear("[info] round closed counted=2 measured_after_round=7 round=1 seconds=1.5")
    assert f"{DUALFED.title}: {words}" == heard.getvalue().strip()


def method(name: str, title: str, *final: float) -> Method:
    """A run that ended with these accuracies."""
    sites = {f"s{number}": value for number, value in enumerate(final)}
    return Method(name, title, "", {}, {s: {1: v} for s, v in sites.items()}, sites, (1.0,), 1.0, 2.0, 1)


def test_the_verdict_says_where_it_does_not_lead() -> None:
    """A site at which another method is ahead is named with the gap; a draw is no defeat."""
    methods = (
        method("local", "Alone", 0.5, 0.9, 0.5),
        method("fedavg", "FedAvg", 0.6, 0.2, 0.6),
        method("dualfed", "DualFed", 0.7, 0.8, 0.6),
    )
    words = verdict(Findings(methods, dict.fromkeys(methods[0].final), {}, {}, (), 1, {}, {}, 1.0))  # type: ignore[arg-type]
    for fact in ("DualFed reaches 70.0 %", "63.3 % training alone", "46.7 % FedAvg", "2 of 3 sites"):
        assert fact in words
    assert re.search(r"s1 training alone .*10\.0 points\.$", words)


@pytest.mark.parametrize(("real", "words"), [(0.9, "No other method is better at any site."), (0.1, "")])
def test_the_verdict_of_all_or_nothing(real: float, words: str) -> None:
    """First everywhere is said in one sentence; first nowhere is not dressed up."""
    methods = (method("local", "Alone", 0.5, 0.5), method("dualfed", "DualFed", real, real))
    said = verdict(Findings(methods, dict.fromkeys(methods[0].final), {}, {}, (), 1, {}, {}, 1.0))  # type: ignore[arg-type]
    assert words in said
    assert (real > 0.5) == ("No other" in said)
    assert 2 * (real < 0.5) == said.count("training alone is ahead by 40.0 points")


@pytest.mark.parametrize("ends", [(0.5, 0.5, 0.5), (0.1, 0.5, 0.52), (0.9, 0.1, 0.5)])
def test_labels_do_not_lie_on_each_other(ends: tuple[float, ...]) -> None:
    """Three lines that end at one place still have three readable values."""
    series = {name: {0: 0.0, 1: value} for name, value in zip(("a", "b", "c"), ends, strict=True)}
    drawing = svg.draw(curves_over_rounds("curves", series, 1))
    places = sorted(
        float(mark.split('y="')[1].split('"')[0]) for mark in drawing.split("<text") if 'class="end' in mark
    )
    assert 3 == len(places)
    assert all(after - before >= 12.9 for before, after in pairwise(places))


def test_the_verdict_names_what_differs() -> None:
    """Who trained with other settings is neither ahead nor behind; what differs stands beside its number."""
    methods = (
        method("local", "Alone", 0.9, 0.5),
        method("fedavg", "FedAvg", 0.2, 0.2),
        method("dualfed", "DualFed", 0.95, 0.8),
    )
    told = (Differences(("lr 0.1, there 0.2",)), Differences((), ("lambda 1, there none",)), Differences())
    methods = tuple(replace(one, differences=found) for one, found in zip(methods, told, strict=True))
    words = verdict(Findings(methods, dict.fromkeys(methods[0].final), {}, {}, (), 1, {}, {}, 1.0))  # type: ignore[arg-type]
    assert "70.0 % training alone (not comparable: lr 0.1, there 0.2)" in words
    assert re.search(r"20\.0 % FedAvg \(.*lambda 1, there none\)", words)
    assert "comparable method" in words
    assert "ahead" not in words


@pytest.mark.parametrize(("data", "comparable"), [(SAMPLE, True), (Path("/elsewhere"), False)])
def test_steps_were_chosen_alike_on_the_sample_alone(tmp_path: Path, data: Path, comparable: bool) -> None:
    """On other data the same two steps are only different steps."""
    spec = RunSpec(
        "x",
        "dualfed",
        {"lr": 0.1, "lambda": 1.0},
        Model("cnn", (1,), ("a",)),
        rounds=2,
        seed=0,
        roster=("a",),
    )
    (tmp_path / "spec.json").write_text(replace(spec, method="fedavg", settings={"lr": 0.8}).to_json())
    trained = Trained(FEDAVG, {"a": tmp_path}, [], 1.0, 1.0)
    found = findings._differ(replace(spec, data={"a": "11"}), trained, Plan(data, tmp_path))
    assert comparable == found.comparable
    assert "lr 0.1, there 0.8" in (*found.hindering, *found.own)


def test_what_a_site_shows_has_left_it_too(tmp_path: Path) -> None:
    """An update's values travel below `sum` or `show`; the weights of sums are no tensors of the model."""
    line = {"kind": "update", "run": "run-1", "task": "000001-1-train"}
    names = ["sum.encoder.fc.bias", "weight.encoder.fc.bias", "show.head.weight"]
    (tmp_path / "audit.jsonl").write_text(json.dumps({**line, "names": names}) + "\n")
    assert {"encoder.fc.bias", "head.weight"} == read_sent_names(tmp_path / "runs" / "run-1")
