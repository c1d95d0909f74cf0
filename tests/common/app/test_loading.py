"""What a program loads at its start is not looked through for garbage, then or later."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pfl_common.app.loading import loading, look_through_all_seldom


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    often = gc.get_threshold()
    yield
    gc.set_threshold(*often)
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_modules_load() -> None:
    """And what they made is left out of all later looks; those go on."""
    with loading():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(made)
    assert not any(one is made for one in gc.get_objects())


def test_a_program_that_collects_nothing_is_left_so() -> None:
    """Also where a module cannot be loaded."""
    gc.disable()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert not gc.isenabled()


def test_all_is_looked_through_a_fifth_as_often() -> None:
    """What is young as often as before."""
    gc.set_threshold(700, 10, 10)  # Python's own
    for _ in range(2):
        look_through_all_seldom()
        assert (700, 10, 50) == gc.get_threshold()
