"""Tables, texts and recordings in files of rows, from the site's folder to predictions for new rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from pfl_common.app.config import settle
from pfl_deploy.cli import main
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.settings import ServerSettings
from tests.client.data.written import make_patients, write_recordings, write_rows
from tests.words import check_clear, speak

pytest.importorskip("pyarrow")


def play(folders: list[Path], state: Path, **given: Any) -> Result:
    """A short run in one process."""
    words = {"method": "fedrod", "rounds": 3, "sites": len(folders), "state": state / "coordinator", **given}
    words.setdefault("set", {"lr": 0.1, "batch": 8, "epochs": 2})
    return simulate(settle(ServerSettings, words, what="test"), folders, state / "sites")


def scored(result: Result, site: str) -> float:
    return result.curves()[site].last("pre/test/combined")


def predict(result: Result, site: str, file: Path, out: Path) -> list[dict[str, str]]:
    check_clear(speak(main, "predict", result.sites[site], file, "--out", out), 0)
    return list(csv.DictReader(out.read_text().splitlines()))


def share_right(rows: list[dict[str, str]], labels: list[object]) -> float:
    assert len(labels) == len(rows)
    return sum(row["class"] == label for row, label in zip(rows, labels, strict=True)) / len(labels)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Three sites: a CSV with missing values and a category of its own, a Parquet, and one that hides its counts."""
    home = tmp_path_factory.mktemp("tables")
    rows = [{**row, "ward": "icu"} if number % 5 == 0 else row for number, row in enumerate(make_patients())]
    whole = [row for row in make_patients(96, seed=1) if row["age"] is not None][:48]
    write_rows(home / "north" / "train.csv", rows[:32])
    write_rows(home / "north" / "test.csv", rows[32:])
    write_rows(home / "east" / "train.parquet", whole[:32])
    write_rows(home / "east" / "test.parquet", whole[32:])
    write_rows(home / "west" / "data.jsonl", make_patients(seed=2))
    (home / "west" / "data.json").write_text('{"tell_counts": false, "tell_categories": false}')
    return home, play([home / name for name in ("north", "east", "west")], home / "out")


def test_sites_with_the_same_task_in_three_formats_train_one_model(tables: tuple[Path, Result]) -> None:
    """The schema says missing ages, the extra ward and all others; sums are those of the two that tell them."""
    _, result = tables
    age, sex, ward = result.spec.model.table
    assert ("age", True, "sex", "ward") == (age.name, age.missing, sex.name, ward.name)
    assert ("a", "b", "icu") == ward.categories
    assert (9,) == result.spec.model.shape
    assert "not of 'west'" in result.spec.chosen["scaling"]
    assert 55 < age.mean < 65
    assert min(scored(result, site) for site in ("north", "east", "west")) > 0.75


@pytest.mark.parametrize(("site", "file"), [("north", "test.csv"), ("east", "test.parquet")])
def test_predictions_of_a_file_are_what_the_site_scored(
    tables: tuple[Path, Result], tmp_path: Path, site: str, file: str
) -> None:
    """Recomputed from the predictions of its test file, in this and in another format."""
    home, result = tables
    rows = (
        make_patients()
        if site == "north"
        else [r for r in make_patients(96, seed=1) if r["age"] is not None][:48]
    )
    labels = [row["label"] for row in rows[32:]]
    told = predict(result, site, home / site / file, tmp_path / "p.csv")
    assert scored(result, site) == share_right(told, labels)
    if site == "east":
        other = predict(result, site, write_rows(tmp_path / "same.csv", rows[32:]), tmp_path / "q.csv")
        assert [{**row, "file": ""} for row in told] == [{**row, "file": ""} for row in other]


def test_evaluate_reads_folder_and_file_alike(tables: tuple[Path, Result]) -> None:
    """The folder's test part, which this program has drawn itself, and a file with its column of classes."""
    home, result = tables
    for site, data in (("west", home / "west"), ("north", home / "north" / "test.csv")):
        said = speak(main, "evaluate", result.sites[site], data, "--resamples", "100", "--json")
        check_clear(said, 0)
        assert scored(result, site) == json.loads(said.out)["measures"]["accuracy"]["value"]


def test_texts_are_hashed_and_learnt(tmp_path: Path) -> None:
    """From CSV and JSON lines; nothing of the words is told, and the prediction of the file is what was scored."""
    texts = [
        {"text": f"the {word} was {seen} {number}", "label": label}
        for number in range(12)
        for word, seen, label in (("cough", "bad", "ill"), ("nose", "fine", "well"))
    ]
    for name, kind in (("a", "csv"), ("b", "jsonl")):
        write_rows(tmp_path / name / f"train.{kind}", texts)
        write_rows(tmp_path / name / f"test.{kind}", texts[:8])
    (tmp_path / "a" / "data.json").write_text('{"vocabulary": {"hashed": 200}}')
    (tmp_path / "b" / "data.json").write_text('{"vocabulary": {"hashed": 200}}')
    result = play(
        [tmp_path / "a", tmp_path / "b"], tmp_path / "out", set={"lr": 0.5, "batch": 8, "epochs": 4}
    )
    assert ("hashed", 200, ()) == (
        result.spec.model.numbering,
        result.spec.model.tokens,
        result.spec.model.words,
    )
    told = predict(result, "b", tmp_path / "b" / "test.jsonl", tmp_path / "p.csv")
    assert scored(result, "b") == share_right(told, [row["label"] for row in texts[:8]]) == 1


def test_recordings_are_learnt(tmp_path: Path) -> None:
    """Cut into windows; a new recording is cut and predicted alike."""
    folders = [write_recordings(tmp_path / name, count=3, seed=at) for at, name in enumerate("ab")]
    result = play(folders, tmp_path / "out", set={"lr": 0.05, "batch": 8, "epochs": 2}, rounds=2)
    assert ("har_cnn", (2, 32), ("a", "z")) == (
        result.spec.model.backbone,
        result.spec.model.shape,
        result.spec.model.columns,
    )
    right = []
    for label in ("slow", "fast"):
        for file in sorted((folders[0] / "test" / label).iterdir()):
            rows = predict(result, "a", file, tmp_path / "p.csv")
            right += [row["class"] == label for row in rows]
    assert scored(result, "a") == sum(right) / len(right) > 0.9
