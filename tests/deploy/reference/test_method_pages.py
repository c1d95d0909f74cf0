"""The pages of methods say what the methods' files, the figures and the tests say: none of them can go stale."""

from __future__ import annotations

import json

import pytest

from pfl_common import methods
from pfl_deploy.reference import method_pages
from pfl_deploy.reference.method_pages import FOLDER, write_index, write_page, write_pages
from pfl_server.method_help.explanation import read_words
from pfl_server.run.kept_figures import NETWORKS, read_kept
from tests.common.methods.tested import FILE, find_items, predict

ADVICE = "make them again: python -m pfl_deploy.reference.method_pages"


def test_pages_are_those_that_would_be_made_now() -> None:
    """Letter by letter, and none of a method that is gone."""
    pages = dict(write_pages())
    assert set(pages) == {file.name for file in FOLDER.glob("*.md")}, ADVICE
    for name, text in pages.items():
        assert text == (FOLDER / name).read_text(encoding="utf-8"), f"{name} is stale; {ADVICE}"


def test_figures_are_of_every_method() -> None:
    """And of none that is gone."""
    assert {network.words: set(methods.names()) for network in NETWORKS} == {
        words: set(rows) for words, rows in read_kept().items()
    }, ADVICE


@pytest.mark.parametrize("name", methods.names())
def test_what_tests_know_is_of_today(name: str) -> None:
    """The worked examples are those that are marked now, and all of them held; bytes are predicted as in the test."""
    row = json.loads(FILE.read_text())[name]
    advice = (
        "run python -m tests.common.methods.tested, then python -m pfl_deploy.reference.method_pages --words"
    )
    assert find_items().get(name, []) == row["items"], advice
    assert predict(name) == row["predicted"], advice
    assert row["passed"] == row["marked"]


@pytest.mark.parametrize("name", methods.names())
def test_a_page_has_every_paragraph_of_the_methods_file(name: str) -> None:
    """Each label that a method's file has to have says something, and stands on its page."""
    page = write_page(name)
    for label, text in read_words(methods.load(name).doc).labelled.items():
        assert text, f"{name}.py has no paragraph {label}:"
        # The first letter may be a capital on the page.
        assert method_pages._safe(text.split(".")[0][1:]) in page


def test_the_table_has_a_row_for_each_method() -> None:
    """Its lines, bytes beside FedAvg, and whether sums suffice."""
    rows = {
        row.split("`")[1]: row.split(" | ") for row in write_index().splitlines() if row.startswith("| [`")
    }
    assert set(methods.names()) == set(rows)
    for name, row in rows.items():
        found = read_kept()[NETWORKS[0].words][name]
        assert (f"{found.up:,}", f"{found.down:,}") == (row[2], row[5])
        assert ("no" if methods.load(name).shows else "yes") == row[11]
    assert "1.000" == rows["fedavg"][3] == rows["fedavg"][6]


def test_marks_of_formulas_are_no_markup() -> None:
    """A product of two numbers in a docstring is no emphasis."""
    assert r"a\*b \< c\|d" == method_pages._safe("a*b < c|d")
