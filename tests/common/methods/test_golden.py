"""Tests that are marked as worked examples say whose and which."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common import methods
from tests.common.methods.golden import find_marked


def test_every_mark_names_methods_that_are_there() -> None:
    """A misspelt method would be counted for nobody."""
    for marked in find_marked():
        assert set(marked.methods) <= set(methods.names()), (marked.file.name, marked.test)


def test_marks_are_read_from_the_text(tmp_path: Path) -> None:
    """Methods, then the number; several methods are several; a test without a mark is none."""
    text = '@pytest.mark.golden("a", "b", item=7)\ndef test_one() -> None: ...\ndef test_two() -> None: ...\n'
    (tmp_path / "test_x.py").write_text(text)
    (found,) = find_marked(tmp_path)
    assert ("test_one", ("a", "b"), 7) == (found.test, found.methods, found.item)


@pytest.mark.parametrize("words", ['item="7"', '"a"', '"a", 7'])
def test_a_mark_without_method_or_number_is_an_error(words: str, tmp_path: Path) -> None:
    """It names the test."""
    (tmp_path / "test_x.py").write_text(f"@pytest.mark.golden({words})\ndef test_one() -> None: ...\n")
    with pytest.raises(ValueError, match=r"test_x\.py, test_one"):
        find_marked(tmp_path)
