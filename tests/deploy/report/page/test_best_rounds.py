"""The page's table of best rounds, from histories that stand in for sites."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pfl_deploy.report.page.best_rounds import tell_best_rounds


def page_of(**best: dict[str, float] | None) -> str:
    """What is told of sites with these best models."""
    histories = {site: SimpleNamespace(best=found) for site, found in best.items()}
    facts: Any = SimpleNamespace(run=SimpleNamespace(histories=histories))
    return tell_best_rounds(facts)


def test_each_site_that_kept_one() -> None:
    """Its round, and how good it was on how many samples; a site without one has no row."""
    page = page_of(a={"round": 7, "accuracy": 0.875, "loss": 0.5, "samples": 16}, b=None)
    assert '<td>a</td><td class="n">7</td><td class="n">87.50</td><td class="n">16</td>' in page
    assert "<td>b</td>" not in page


def test_without_any_there_is_no_such_part() -> None:
    """A run that keeps the last models, or sites whose histories are not known."""
    assert ("", "") == (page_of(), page_of(a=None))
