"""A folder of rows, from its files to words for its owner."""

from __future__ import annotations

from pathlib import Path

from pfl_client.data import look_through
from pfl_client.data.declaration import Declared
from pfl_client.data.layout import PARTS
from pfl_client.data.row_files import find_rows
from pfl_client.data.row_folder import read
from pfl_client.trainer_process.api import DataFolder
from tests.client.data.written import make_patients, write_rows


def test_what_it_is_is_said_and_counted(tmp_path: Path) -> None:
    """As `pfl doctor --data` shows it."""
    write_rows(tmp_path / "data.csv", make_patients())
    found = look_through(tmp_path)
    assert "a table in data.csv, divided by this program" == found.layout
    assert "a table of 3 columns" == found.recognised
    assert 48 == sum(own.total() for own in found.counts.values())
    assert "by name ('sex', 'ward')" in found.told
    assert found.error is None


def test_texts_and_tables_are_read_by_their_own_modules(tmp_path: Path) -> None:
    """And each says what leaves the site."""
    write_rows(tmp_path / "train.jsonl", [{"text": "no fever", "label": "well"}] * 2)
    files = find_rows(tmp_path, PARTS)
    assert files is not None
    folder = read(files, Declared(), DataFolder(tmp_path, "a"))
    assert "texts in train.jsonl" == folder.layout
    assert ["told_of_words"] == list(folder.tell(folder.describe()))
