"""Takes out of a run's record what is a mean over few sites, unless whoever asks has all sites' own histories anyway.

The journal keeps every sum, for replay and for an early end; a page is handed on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from pfl_common.evaluation import TOLD, summary, tell_too_few
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import ClientId
from pfl_deploy.report.sources.coordinator import Record, Tried

_REPORTERS = 2
"""The place of the number of sites in a sum of what training said."""


def hide_few(record: Record, owned: Collection[ClientId], fewest: int) -> Record:
    """The record without sums over fewer sites, and without what the method found out from fewer updates."""
    if set(record.sites) <= set(owned):
        return record
    scores = {key: _limit(total, fewest) for key, total in record.scores.items()}
    return replace(
        record, scores=scores, attempts=tuple(_limit_attempt(tried, fewest) for tried in record.attempts)
    )


def tell_hidden(record: Record, shown: Record, fewest: int) -> Iterator[str]:
    """That something is not shown, and what would show it."""
    reporters = {
        _count(name, values)
        for key, total in record.scores.items()
        for name, values in total.items()
        if name not in shown.scores[key]
    }
    if reporters:
        yield (
            f"Accuracy and diagnostics of {tell_too_few(max(reporters), fewest)}: it would say much about each of "
            "them. Name the folders of all sites with --sites, or --fewest-reporters 1 if they agree."
        )


def _limit(total: Scores, fewest: int) -> Scores:
    return {name: values for name, values in total.items() if _count(name, values) >= fewest}


def _count(name: str, values: list[float]) -> int:
    return round(values[_REPORTERS] if name.startswith(TOLD) else summary(values)["sites"])


def _limit_attempt(tried: Tried, fewest: int) -> Tried:
    if tried.course is None or len(tried.counted) >= fewest:
        return tried
    return replace(tried, course=replace(tried.course, diagnostics={}))
