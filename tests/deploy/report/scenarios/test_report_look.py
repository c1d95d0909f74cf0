"""The report in a real browser: it asks nobody, complains of nothing, fits a phone, and can be read by day and night.

Pictures are kept in the folder that PFL_TEST_OUTPUT names, else in the test's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.spec.run import RunSpec
from pfl_server.telemetry.course import Course
from tests.deploy.support.browser import Browser, browsing
from tests.deploy.support.reported import SITES, Book, Played, measured, play, report
from tests.deploy.support.served_page import FAINT, overflow

LONG = "a_site_with_a_very_long_name_" * 3


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser."""
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Three runs of the same three sites."""
    return play(tmp_path_factory.mktemp("played"))


@pytest.fixture(scope="module")
def pages(played: Played, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run with all there is; a large one that failed, of sites with long names."""
    place = tmp_path_factory.mktemp("pages")
    report(played.folder, place / "whole")
    report(write_large(place / "runs", played.spec("dualfed")), place / "large")
    return {name: place / name / "report.html" for name in ("whole", "large")}


def write_large(folder: Path, spec: RunSpec) -> Path:
    """Sixty rounds of sixty sites, each round with losses and every tenth one tried twice."""
    sites = [f"{LONG}{number:02d}" for number in range(60)]
    book = Book(folder, replace(spec, rounds=60), sites=sites)
    for number in range(1, 61):
        spent = {"work": 90.0, "download": 9.0, "fold": 0.5, "wait": 1.0}
        moved = {"down/train": 10**8, "up/train": 10**8}
        lost = {sites[number % 60]: "lease", sites[-number % 60]: "deadline: " + "why " * 40}
        again = Course(number, 1, 100.0 * number, 100.0 * number + 10, spent, moved)
        if number % 10 == 0:
            book.abandon(number, lost, "a quorum of 54 cannot be reached any more", course=again)
            again = replace(again, attempt=2)
        reached = [0.1 + 0.8 * number / 60 * (place + 1) / 60 for place in range(60)]
        book.commit(number, lost=lost, course=again, accuracies=reached)
    book.journal.sum_up(["000060-1-finish"], measured(*(0.1 + place / 70 for place in range(60))))
    return book.close("failed", "the disk of the coordinator was full " * 5)


@pytest.mark.parametrize("name", ["whole", "large"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_and_asks_nobody(name: str, width: int, pages: dict[str, Path], browser: Browser) -> None:
    """No scrolling sideways, nothing in the console, no request but for the page itself."""
    browser.look(width=width, height=800)
    browser.requests(), browser.complaints()
    browser.open(pages[name].as_uri())
    assert [] == overflow(browser)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert [pages[name].as_uri()] == browser.requests()
    assert [] == browser.complaints()
    kept = Path(os.environ.get("PFL_TEST_OUTPUT") or pages[name].parent) / "report"
    assert browser.picture(kept / f"{name}-{width}.png").stat().st_size > 10_000


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_from_the_ground(dark: bool, pages: dict[str, Path], browser: Browser) -> None:
    """By day and by night."""
    browser.look(width=1280, height=900, dark=dark)
    browser.open(pages["whole"].as_uri())
    assert [] == browser.run(FAINT)


def test_what_is_seen_is_what_was_written(played: Played, pages: dict[str, Path], browser: Browser) -> None:
    """The sites' rows as a person reads them."""
    browser.look(width=1280, height=900)
    browser.open(pages["whole"].as_uri())
    ends = played.accuracies("dualfed", "000003-1-finish", "pre/test/combined")
    mean = browser.text(".tile b")
    assert f"{100 * sum(ends) / 3:.1f} %" == mean
    rows = browser.texts("#fairness table:nth-of-type(1) tr")
    for site, end in zip(SITES, ends, strict=True):
        assert any(row.split()[:2] == [site, f"{100 * end:.2f}"] for row in rows), rows
