"""What the status page does with facts it cannot draw, and with rounds of which no time is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.deploy.support.browser import Browser, browsing
from tests.deploy.support.served_page import Served, under_way, visit


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser."""
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


def test_what_cannot_be_drawn_is_not_silence(browser: Browser) -> None:
    """A coordinator that answers is not said to be away; the page asks on and recovers by itself."""
    served = Served(under_way(spec=None), 0)
    with served.running():
        browser.open(served.url)
        browser.wait_for(lambda: browser.text("#silence"))
        assert "pfl status" in browser.text("#silence"), "what can be asked instead"
        assert "running" == browser.run("return document.getElementById('hero').dataset.state")
        served.status = under_way(round=4)
        browser.wait_for(lambda: "Round 4 of 9" == browser.text("#place"))
        assert not browser.run("return document.getElementById('silence').checkVisibility()")


def test_rounds_of_an_older_release_have_no_pace(browser: Browser) -> None:
    """Their time is not known: the estimate is by the others alone, and without others there is none."""
    curve = under_way().curve
    first = replace(curve[0], round=1, ended=0.0, seconds=0.0)
    newer = tuple(replace(curve[1], round=number, ended=curve[1].ended + 10 * number) for number in (2, 3))
    served = Served(under_way(curve=(first, *newer)), 0)
    with served.running():
        visit(browser, served.url)
        paced = browser.text("#saying")
        assert "pace" in paced
        served.status = under_way(curve=newer)
        visit(browser, served.url)
        assert paced == browser.text("#saying")
        served.status = under_way(curve=(first, newer[0]))
        visit(browser, served.url)
        assert "pace" not in browser.text("#saying")
