"""What a site is told about oddities of its data, from numbers of samples alone."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from pfl_client.data.warnings import enumerate_names, number_classes, remark, remark_sizes
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError

LAX = DataFolder(Path("nowhere"), "a")
STRICT = DataFolder(Path("nowhere"), "a", strict=True)


def counts(train: str, test: str, validation: str = "", shifted: str = "") -> dict[str, Counter[str]]:
    """A letter is a sample of that class."""
    parts = {"train": train, "test": test, "validation": validation, "shifted": shifted}
    return {part: Counter(letters) for part, letters in parts.items()}


def test_data_without_oddities() -> None:
    """Two classes, each trained and tested: nothing is said, also not to the strict."""
    assert [] == remark(counts("aab", "ab"), STRICT)


def test_one_class_is_a_warning_and_to_the_strict_an_error() -> None:
    """A site with one class can still teach the others what theirs are not."""
    (words,) = remark(counts("aa", "a"), LAX)
    assert "one class here, 'a'" in words
    with pytest.raises(DataError, match="class 'a' alone"):
        remark(counts("aa", "a"), STRICT)


def test_classes_that_only_one_part_has() -> None:
    """Test, validation and second test may hold a class that training lacks; training one that the test lacks."""
    assert ["no test samples of 'b'", "no training samples of 'c', 'd', 'e'"] == remark(
        counts("ab", "ac", "d", "e"), LAX
    )
    (words,) = remark(counts("ab", ""), LAX)
    assert words.startswith("no test samples:")


def test_classes_of_very_different_size() -> None:
    """From ten times on, the largest against the smallest; counts are not told, only how many times."""
    assert [] == remark(counts("a" * 19 + "bb", "ab"), STRICT)
    (words,) = remark(counts("a" * 21 + "bb" + "ccc", "abc"), LAX)
    assert "'a' has 10 times the training samples of 'b'" in words
    assert "macro-F1" in words


def test_sizes_of_images() -> None:
    """The three that are most often there are named."""
    sizes = Counter({(8, 9): 4, (7, 7): 1, (6, 6): 3, (5, 5): 2})
    (words,) = remark_sizes(sizes, LAX)
    assert re.search(r"\b4 .*: 8x9 \(4 images\), 6x6 \(3 images\), 5x5 \(2 images\)$", words)
    with pytest.raises(DataError, match="4 different sizes"):
        remark_sizes(sizes, STRICT)
    assert [] == remark_sizes(Counter({(8, 9): 4}), STRICT)


def test_classes_are_numbered_as_in_the_run() -> None:
    """A class the site lacks keeps its number; one the run lacks is an error that says how many there are."""
    spec = SimpleNamespace(model=SimpleNamespace(classes=("cat", "cow", "dog")))
    assert {"cat": 0, "cow": 1, "dog": 2} == number_classes(["dog"], LAX, spec)
    with pytest.raises(DataError, match=r"class 'bee'.* 1 more") as refused:
        number_classes(["dogs", "dog", "bee"], LAX, spec)
    assert "classes of the run: 'cat', 'cow', 'dog'" == refused.value.expected


def test_five_names_and_the_number_of_the_others() -> None:
    """A site with a thousand classes gets a line that can be read."""
    assert "'a', 'b', 'c', 'd', 'e'" == enumerate_names("abcde")
    assert "'a', 'b', 'c', 'd', 'e' and 2 more" == enumerate_names("abcdefg")
