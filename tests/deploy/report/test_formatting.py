"""Numbers as people read them."""

from __future__ import annotations

import pytest

from pfl_deploy.report import formatting


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "250 ms"),
        (1, "1.0 s"),
        (59.9, "59.9 s"),
        (60, "1 min 0 s"),
        (125.4, "2 min 5 s"),
        (3599.6, "1 h 0 min"),
        (47 * 3600 + 60, "47 h 1 min"),
        (48 * 3600, "2 d 0 h"),
        (51 * 3600, "2 d 3 h"),
    ],
)
def test_a_time_in_two_units(seconds: float, words: str) -> None:
    """What is nearly an hour is one, not sixty minutes."""
    assert words == formatting.duration(seconds)


@pytest.mark.parametrize(
    ("count", "words", "short"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1000, "1.0 kB", "1 kB"),
        (1500, "1.5 kB", "1.5 kB"),
        (2_000_000, "2.0 MB", "2 MB"),
        (20_000_000, "20.0 MB", "20 MB"),
        (3_456_000_000, "3.46 GB", "3.46 GB"),
        (5e12, "5000.00 GB", "5000 GB"),
    ],
)
def test_bytes_by_thousands(count: float, words: str, short: str) -> None:
    """An axis drops what is zero behind the point, and no zero before it."""
    assert (words, short) == (formatting.size(count), formatting.short_size(count))


def test_shares_and_their_differences() -> None:
    """A difference has its sign, also where it is none."""
    assert ("87.5 %", "87 %") == (formatting.percent(0.875), formatting.percent(0.87, 0))
    assert ["+1.5", "-1.50", "+0.0"] == [
        formatting.points(0.015),
        formatting.points(-0.015, 2),
        formatting.points(0.0),
    ]


def test_a_moment_is_told_in_universal_time() -> None:
    """86,400 seconds are the second day."""
    assert "1970-01-02 00:00:01 UTC" == formatting.moment(86_401)


def test_one_and_many() -> None:
    """Nothing is many, and so is a thousand."""
    said = [formatting.counted(number, "site") for number in (0, 1, 2, 1000)]
    assert ["0 sites", "1 site", "2 sites", "1,000 sites"] == said
    assert "3 entries" == formatting.counted(3, "entry", "entries")
