"""Tests that are marked as worked examples say whose and which."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common import methods
from tests.common.methods.golden import find_marked
from tests.common.methods.tested import Counted


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


class Item:
    """A collected test with its marks."""

    def __init__(self, nodeid: str, *marks: tuple[str, ...]) -> None:
        self.nodeid, self._marks = nodeid, [pytest.mark.golden(*words, item=1).mark for words in marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        """Those of one name."""
        return [mark for mark in self._marks if mark.name == name]


def test_a_case_counts_once_for_each_of_its_methods() -> None:
    """Whether one mark names both or each has its own; one that fails is marked and has not passed."""
    counted = Counted()
    counted.pytest_collection_modifyitems([Item("x", ("a",), ("a", "b")), Item("y", ("b",)), Item("z")])
    for node, when, outcome in (("x", "setup", "passed"), ("x", "call", "passed"), ("y", "call", "failed")):
        report = pytest.TestReport(node, ("", 0, ""), {}, outcome, None, when)
        counted.pytest_runtest_logreport(report)
    assert ({"a": 1, "b": 2}, {"a": 1, "b": 1}) == (counted.marked, counted.passed)
