"""Small JSON files: what is no JSON, too long or too deep is one kind of error."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client import data
from pfl_client.data import json_file
from pfl_client.data.json_file import read_json
from pfl_common.errors import DataError
from tests.client.data.test_images import draw, folder


def test_what_it_says(tmp_path: Path) -> None:
    """Any value."""
    (tmp_path / "a.json").write_text('{"a": [1, "ü"]}', encoding="utf-8")
    assert {"a": [1, "ü"]} == read_json(tmp_path / "a.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_json(tmp_path: Path, content: bytes) -> None:
    """A file that nobody can mean is an error of the data, in words."""
    (tmp_path / "data.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"\w"):
        read_json(tmp_path / "data.json")
    draw(tmp_path / "train" / "cat" / "1.png")
    with pytest.raises(DataError, match=r"data\.json cannot be read"):
        data.describe(folder(tmp_path))


def test_a_file_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of it is read than a list can be long."""
    monkeypatch.setattr(json_file, "MOST_BYTES", 9)
    (tmp_path / "a.json").write_text('["0123456789"]')
    with pytest.raises(ValueError, match="more than 9 bytes"):
        read_json(tmp_path / "a.json")
