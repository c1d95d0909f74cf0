"""What follows from a manifest is worked out once."""

import pytest

from pfl_common.spec import memo as module
from pfl_common.spec.memo import remembered


def test_the_same_object_is_asked_once_and_an_equal_one_again() -> None:
    """Equality would have to be found out first, and that is what costs time."""
    asked: list[tuple[tuple[int, ...], str]] = []

    @remembered
    def measure(numbers: tuple[int, ...], word: str) -> int:
        asked.append((numbers, word))
        return len(numbers)

    first, second = (1, 2, 3), tuple([1, 2, 3])
    assert [3] * 5 == [
        measure(first, "a"),
        measure(first, "a"),
        measure(first, "b"),
        *[measure(second, "a")] * 2,
    ]
    assert [(first, "a"), (first, "b"), (second, "a")] == asked


def test_an_error_is_not_remembered() -> None:
    """A caller that asks again hears it again."""
    asked = []

    @remembered
    def refuse(numbers: tuple[int, ...]) -> None:
        asked.append(numbers)
        raise ValueError(numbers)

    numbers = (1,)
    for _ in range(2):
        try:
            refuse(numbers)
        except ValueError:
            continue
    assert 2 == len(asked)


def test_it_does_not_grow_for_ever() -> None:
    """A thousand sites in one process have a specification each; no number is taken for that of a forgotten one."""

    @remembered
    def first_of(numbers: tuple[int, ...]) -> int:
        return numbers[0]

    assert list(range(3 * module.MOST)) == [first_of((number,)) for number in range(3 * module.MOST)]


def test_words_have_places() -> None:
    """What is given by name would be left out of what answers are known by: it is not taken."""

    @remembered
    def first_of(numbers: tuple[int, ...], *, less: int = 0) -> int:
        return numbers[0] - less

    with pytest.raises(TypeError, match="first_of takes its words by place"):
        first_of((1,), less=1)
