"""What a program loads at its start is not looked through for garbage, then or later."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pfl_common.app.loading import loading


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
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
