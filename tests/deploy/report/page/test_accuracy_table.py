"""The table of sites by runs, by hand: differences, means, and what is not there."""

from __future__ import annotations

from pfl_deploy.report.page.accuracy_table import Column, show_accuracies
from pfl_deploy.report.page.html import MOST_ROWS
from tests.deploy.support.reported import Page

OWN = Column("ours", {"b": 0.5, "a": 0.9}, {"b": 0.25})
ALONE = Column("alone", {"a": 0.8, "b": 0.6}, {"b": 0.5})
HEAD = ["site", "ours", "alone", "less alone", "ours, shifted", "alone, shifted"]


def rows(text: str) -> list[list[str]]:
    """All cells, row by row."""
    return [[cell.strip() for cell in row] for row in Page(text).rows]


def test_sites_by_name_and_their_mean() -> None:
    """The gain is the first run's over the one alone; the second test is of the sites that have it."""
    assert [
        HEAD,
        ["a", "90.00", "80.00", "+10.00", "", ""],
        ["b", "50.00", "60.00", "-10.00", "25.00", "50.00"],
        ["mean of these", "70.00", "70.00", "+0.00", "25.00", "50.00"],
    ] == rows(show_accuracies([OWN, ALONE], alone=ALONE))


def test_runs_that_cannot_be_compared() -> None:
    """No difference is taken, also not of the means."""
    found = rows(show_accuracies([OWN, ALONE], alone=ALONE, comparable=False))
    assert ["less alone", *["not comparable"] * 3] == [row[3] for row in found]


def test_a_run_that_lacks_a_site_has_no_mean() -> None:
    """The mean of other sites is not to be read beside it."""
    found = rows(show_accuracies([OWN, Column("part", {"a": 1.0})]))
    assert [["site", "ours", "part", "ours, shifted"], ["b", "50.00", "", "25.00"]] == found[:3:2]
    assert ["mean of these", "70.00", "", "25.00"] == found[-1]
    shifted = Column("part", {"a": 0.1, "b": 0.1}, {"a": 1.0, "b": 0.0})
    assert ["mean of these", "70.00", "10.00", "", "50.00"] == rows(show_accuracies([OWN, shifted]))[-1]


def test_one_site_is_its_own_mean() -> None:
    """Nothing is said twice."""
    assert [["site", "ours"], ["a", "90.00"]] == rows(show_accuracies([Column("ours", {"a": 0.9})]))


def test_the_mean_is_of_all_sites_of_a_long_table() -> None:
    """Also of those that only the JSON lists; they are counted without it."""
    many = {f"{number:03d}": number / 100 for number in range(MOST_ROWS + 20)}
    text = show_accuracies([Column("ours", many)])
    assert ["mean of these", "29.50"] == rows(text)[-1]
    assert MOST_ROWS + 2 == len(rows(text))
    assert "60 sites" in text
