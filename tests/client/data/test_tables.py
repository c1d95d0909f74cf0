"""Tables from files of rows: what is told of them, and the same samples from every format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import RunSpec
from pfl_common.spec.table_schema import Column
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import spec
from tests.client.data.written import make_patients, write_rows

ROWS = make_patients()


def site(
    folder: Path, rows: Sequence[Mapping[str, object]] = ROWS, *, name: str = "csv", said: object = None
) -> DataFolder:
    write_rows(folder / f"train.{name}", rows[:36])
    write_rows(folder / f"test.{name}", rows[36:])
    if said is not None:
        (folder / "data.json").write_text(json.dumps(said))
    return DataFolder(folder, folder.name)


def agreed(*folders: DataFolder) -> RunSpec:
    return replace(spec(), model=agree({one.site: data.describe(one) for one in folders}, Wish()))


@pytest.mark.parametrize("name", ["parquet", "jsonl"])
def test_every_format_gives_the_same_samples(tmp_path: Path, name: str) -> None:
    """To the bit; and the same description but for the digest of the files."""
    one, other = site(tmp_path / "a"), site(tmp_path / "b", name=name)
    said = [replace(data.describe(folder), data="") for folder in (one, other)]
    assert said[0] == said[1]
    run = agreed(one, other)
    assert (("age", True), ("sex", False), ("ward", False)) == tuple(
        (c.name, c.missing) for c in run.model.table
    )
    first, second = data.load(one, run), data.load(other, run)
    assert torch.equal(first.train.x, second.train.x)
    assert torch.equal(first.test.y, second.test.y)
    assert run.model.shape == tuple(first.train.x.shape[1:])
    ages = first.train.x[:, 0]
    assert abs(float(ages[first.train.x[:, 1] == 0].mean())) < 1e-6, "over the training parts of both sites"


def test_what_is_told_is_said_in_the_log(tmp_path: Path) -> None:
    """A site that hides its counts tells neither sums nor how many rows it has."""
    with capture_logs() as lines:
        said = data.describe(site(tmp_path / "a"))
    assert 36 == said.samples
    told = next(line["told_of_columns"] for line in lines if "told_of_columns" in line)
    assert "the names of 3 columns" in told
    assert "4 categories of 2 columns by name ('sex', 'ward')" in told
    quiet = data.describe(site(tmp_path / "b", said={"tell_counts": False, "tell_categories": False}))
    assert quiet.samples is None
    assert [0, 0, 0] == [column.count for column in quiet.table]
    assert not any(column.categories for column in quiet.table)


def test_a_text_in_a_column_of_numbers_of_the_test_part_is_told_before_the_run(tmp_path: Path) -> None:
    """By its line."""
    folder = site(tmp_path / "a", [*ROWS[:40], {**ROWS[40], "age": "old"}])
    with pytest.raises(DataError, match=r"test.csv, line 6: the cell in column 'age' is no number"):
        data.describe(folder)


def test_a_site_without_a_column_of_the_run(tmp_path: Path) -> None:
    """Takes it as missing where the run has a place for that; else it is refused."""
    full, poor = (
        site(tmp_path / "a"),
        site(tmp_path / "b", [{k: v for k, v in r.items() if k != "ward"} for r in ROWS]),
    )
    run = agreed(full)
    with pytest.raises(DataError, match="b has no column 'ward', which the run needs"):
        data.load(poor, run)
    table = tuple(replace(column, missing=True) for column in run.model.table)
    loose = replace(run, model=replace(run.model, table=table, shape=(10,)))
    with capture_logs() as lines:
        loaded = data.load(poor, loose)
    assert bool((loaded.train.x[:, -1] == 1).all())
    assert ["ward"] == [line["column"] for line in lines if line["event"] == "a column is missing"]


def test_validation_takes_whole_patients(tmp_path: Path) -> None:
    """Rows of one patient, who is as old in each of them, are in one part."""
    rows = [{**row, "age": 20 + place // 2} for place, row in enumerate(ROWS)]
    folder = replace(site(tmp_path / "a", rows), hold_out=0.25)
    local = data.load(folder, agreed(folder))
    train, held = (set(part.x[:, 0].tolist()) for part in (local.train, local.validation))
    assert held
    assert not train & held


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"": 0, "age": 1, "label": "a"}], "a column without a name"),
        ([{"label": "a"}], "0 columns beside that of the class"),
        ([{"age": "", "label": "a"}], "no column of the table has a value"),
    ],
)
def test_tables_that_cannot_be_learnt_from(tmp_path: Path, rows: list[dict[str, object]], words: str) -> None:
    """In words, before any call."""
    write_rows(tmp_path / "train.csv", rows)
    with pytest.raises(DataError, match=words):
        data.describe(DataFolder(tmp_path, "a"))


def test_a_table_and_a_run_of_other_data(tmp_path: Path) -> None:
    """Is refused, as is a table in a folder with class folders."""
    folder = site(tmp_path / "a")
    with pytest.raises(DataError, match="the run is about other data"):
        data.load(folder, spec())
    (tmp_path / "a" / "train" / "ill").mkdir(parents=True)
    with pytest.raises(DataError, match=r"holds train\.csv and the folder train"):
        data.describe(folder)


def test_what_is_said_of_rows_is_refused_of_arrays(tmp_path: Path) -> None:
    """Nothing that data.json says is without meaning."""
    (tmp_path / "data.json").write_text('{"kind": "table", "tell_counts": false}')
    (tmp_path / "train.npz").touch()
    with pytest.raises(DataError, match="says 'tell_counts', and the folder holds arrays"):
        data.describe(DataFolder(tmp_path, "a"))
    assert Column("c").width == 1
