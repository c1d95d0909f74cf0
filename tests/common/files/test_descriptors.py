"""A program takes as many descriptors as it may have, whatever the shell that started it thinks it needs."""

from __future__ import annotations

import resource

import pytest

from pfl_common.files import descriptors

ANY = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit, which nobody else has to live with; beyond 200,000 the system says no."""
    held = [1024, 4096]

    def change(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > 200_000:
            raise ValueError("current limit exceeds maximum limit")
        held[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(held))
    monkeypatch.setattr(resource, "setrlimit", change)
    return held


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([1024, 4096], [4096, 4096], 4096),
        ([1024, 1024], [1024, 1024], 1024),
        ([256, ANY], [10_240, ANY], 10_240),
        ([ANY, ANY], [ANY, ANY], descriptors.MOST),
        ([180_000, ANY], [180_000, ANY], 180_000),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one(
    limits: list[int], before: list[int], after: list[int], told: int
) -> None:
    """Never above it, never lowered; where a system has no limit and refuses it all the same, to what it does take."""
    limits[:] = before
    assert (told, after) == (descriptors.raise_limit(), limits)
