"""The page's part about sites: the spread of accuracy over them, at the end and at the best round."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pfl_common.spec.run import ClientId
from pfl_deploy.report import formatting
from pfl_deploy.report.charts import svg
from pfl_deploy.report.charts.model import Chart
from pfl_deploy.report.facts import Facts, Told, differ, site_gains
from pfl_deploy.report.formatting import counted
from pfl_deploy.report.page.accuracy_table import Column, show_accuracies
from pfl_deploy.report.page.html import card, pair, paragraph, section, table
from pfl_deploy.report.sources.evaluations import Measured, Point


def tell_sites(facts: Facts, charts: dict[str, Chart]) -> str:
    """Accuracy by site, its spread at the end and at the best round, and each known site's own."""
    cards = [
        card(title, svg.draw(charts[name]), caption)
        for name, title, caption in (
            ("sites", "Accuracy by site, in percent", "Told by the sites' own histories."),
            (
                "distribution",
                "Sites by accuracy, in percent",
                "From the sums of all evaluations: no names in it.",
            ),
        )
        if name in charts
    ]
    rows = [
        _fairness_row(told, facts, part, point)
        for part, find in _FAIRNESS.items()
        for told in facts.all
        if (point := find(told.measured))
    ]
    if not rows:
        return ""
    head = ["", "mean", "pooled", "deviation", "worst tenth", "variation", "sites", "less local", "run"]
    return section(
        "fairness",
        "How evenly",
        pair(cards) if cards else "",
        table(head, rows),
        paragraph(
            "In percent, on test data, of the finished models or of the newest state that was measured. Pooled: all "
            "samples together. Deviation: the standard deviation over sites. Variation: deviation over the average "
            "that counts here, "
            + _COUNTS[facts.run.reading.acc_average]
            + ". The worst tenth is known to one percent. "
            "Best: the state whose average is the highest, as papers report it."
            + (_SHIFTED if facts.run.measured.final_of("shifted") else ""),
            "soft",
        ),
        _site_table(facts),
    )


_COUNTS = {"macro": "the mean over sites", "micro": "that of all samples together"}
_SHIFTED = (
    " Shifted: the second test of the sites that have one, of samples that came about otherwise than what they train "
    "on; its mean is over fewer sites where not all of them do."
)


_FAIRNESS: Mapping[str, Callable[[Measured], Point | None]] = {
    "test": lambda measured: measured.final_of("test"),
    "best": lambda measured: measured.best,
    "shifted": lambda measured: measured.final_of("shifted"),
}
"""What there are rows of: the end, the best round, the second test."""


def _fairness_row(told: Told, facts: Facts, part: str, final: Point) -> list[str]:
    alone = facts.find("local")
    other = _FAIRNESS[part](alone.measured) if alone else None
    gain = ""
    if alone is not None and other is not None and told.kind != "local":
        hindering = differ(told, alone).hindering
        points = formatting.points(final.counts - other.counts, 2)
        gain = f"not comparable: {'; '.join(hindering)}" if hindering else points
    shares = (final.mean, final.micro, final.deviation, final.worst_decile, final.variation)
    return [
        f"{told.name}, best: round {final.after}" if part == "best" else _title(told, part),
        *("" if share != share else f"{100 * share:.2f}" for share in shares),
        str(final.sites),
        gain,
        told.record.spec.id,
    ]


def _title(told: Told, part: str) -> str:
    return told.name if part == "test" else f"{told.name}, {part}"


def _site_table(facts: Facts) -> str:
    """Every site whose history is known, with what it has in each run."""
    if not facts.run.finals:
        return ""
    others = [told for told in facts.beside if told.finals]
    alone = facts.find("local")
    return _say_gains(site_gains(facts)) + show_accuracies(
        [_column(told) for told in (facts.run, *others)],
        alone=_column(alone) if alone in others else None,
        comparable=alone is None or alone.differences.comparable,
    )


def _column(told: Told) -> Column:
    return Column(told.name, told.finals, told.finals_of("shifted"))


def _say_gains(by_gain: dict[ClientId, float]) -> str:
    if not by_gain:
        return ""
    worst, best = min(by_gain, key=by_gain.__getitem__), max(by_gain, key=by_gain.__getitem__)
    better = sum(gain > 0 for gain in by_gain.values())
    return paragraph(
        f"Against training alone {better} of {counted(len(by_gain), 'site')} {'gains' if better == 1 else 'gain'}: "
        f"from {formatting.points(by_gain[worst])} points at {worst} to {formatting.points(by_gain[best])} at {best}."
    )
