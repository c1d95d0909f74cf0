"""Pieces of a page: whatever words come from elsewhere are words on it."""

from __future__ import annotations

import pytest

from pfl_deploy.report.page import html
from tests.common.support.terminal_attacks import ATTACKS, list_obeyed

EVIL = "<script>&\"'"


def test_words_are_never_marks() -> None:
    """In every piece that takes words."""
    made = (
        html.page(EVIL, []),
        html.section("name", EVIL),
        html.paragraph(EVIL),
        html.figure("", EVIL),
        html.card(EVIL, "", EVIL),
        html.legend({"run": EVIL}),
        html.tiles({EVIL: EVIL}),
        html.table([EVIL], [[EVIL]]),
        html.long_table(["a"], [["a"]] * 13, EVIL),
    )
    assert [] == [text for text in made if "<script>" in text or "&lt;script&gt;&amp;" not in text]


@pytest.mark.parametrize(
    ("figures", "row"), [(3, 3), (4, 4), (5, 5), (6, 3), (7, 4), (8, 4), (9, 3), (11, 4), (20, 4)]
)
def test_large_figures_leave_few_gaps(figures: int, row: int) -> None:
    """Nine are three rows of three; where fours leave as few gaps as others, they are taken."""
    assert f"--row: {row}" in html.tiles({str(number): "" for number in range(figures)})


def test_numbers_stand_to_the_right() -> None:
    """From the second column on, or from another."""
    assert '<td>a</td><td class="n">1</td>' in html.table(["x", "y"], [["a", "1"]])
    assert "<td>a</td><td>1</td>" in html.table(["x", "y"], [["a", "1"]], numbers_from=2)


@pytest.mark.parametrize(
    ("rows", "folded", "more"),
    [(12, False, ""), (13, True, ""), (40, True, ""), (1041, True, "1,001 more sites")],
)
def test_a_long_table_is_folded(rows: int, folded: bool, more: str) -> None:
    """Forty rows of it are on the page; how many others there are is said."""
    made = html.long_table(["site"], [["a"]] * rows, "sites")
    assert (folded, min(rows, 40)) == (made.startswith("<details>"), made.count("<td>a</td>"))
    assert (more in made) if more else ("report.json" not in made)


def test_a_page_shows_peers_words_and_obeys_none() -> None:
    """Names of classes stand in it: what would turn the direction of writing is shown as its number."""
    hostile = "".join(ATTACKS.values())
    made = html.page(hostile, [html.paragraph(hostile), html.table([hostile], [[hostile]])])
    assert [] == list_obeyed(made)
    assert made.count("gpj.exe") == 4
