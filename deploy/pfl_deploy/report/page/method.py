"""The page's part about the method: the tensors it shares, those that stay, and the numbers it reports."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pfl_deploy.report import formatting
from pfl_deploy.report.charts import svg
from pfl_deploy.report.charts.model import Chart
from pfl_deploy.report.charts.select import LEARNING, TOLD
from pfl_deploy.report.facts import Facts
from pfl_deploy.report.page.html import MOST_ROWS, card, pair, paragraph, section, table
from pfl_deploy.report.sources.method import Sharing, explain, read_sharing

WRITTEN = (
    "What the sites wrote down after each round's training: means over sites. A band is the range from the "
    "least site to the greatest, or what the sentence below says (p10 to p90 are quantiles over samples); a "
    "number that stands alone has a thin line for each site where they are few."
)
SUMMED = (
    "What the sites told of each round's training, known here as sums alone: means over the sites that told it. A "
    "band is one standard deviation over these sites to either side, or what the sentence below says (p10 to p90 are "
    "quantiles over samples, each the mean over sites)."
)


def tell_method(facts: Facts, charts: dict[str, Chart]) -> str:
    """The tensors that cross, the coordinator's numbers by round, the sites' numbers from training."""
    spec = facts.run.record.spec
    meanings = explain(spec.method)
    told = {name: name.removeprefix(TOLD) for name in charts if name.startswith(TOLD)}
    learned = {name: name.removeprefix(LEARNING) for name in charts if name.startswith(LEARNING)}
    parts = [_tell_sharing(read_sharing(spec))]
    if told:
        parts.append(paragraph("What the coordinator found out when it closed each round:", "soft"))
        parts.append(pair(_cards(told, meanings, charts)))
    if learned:
        words = SUMMED if facts.run.learning_is_summed else WRITTEN
        parts += [paragraph(words, "soft"), pair(_cards(learned, meanings, charts))]
    return section("method", "The method at work", *parts)


def _cards(shown: dict[str, str], meanings: Mapping[str, str], charts: dict[str, Chart]) -> list[str]:
    # A family that was cut into several charts has its sentence below each.
    return [
        card(title, svg.draw(charts[name]), meanings.get(title.partition(" (")[0], ""))
        for name, title in shown.items()
    ]


def _tell_sharing(sharing: Sharing) -> str:
    total = sum(part.numbers for part in sharing.parts)
    shared = sum(part.shared for part in sharing.parts)
    seen = "sees each site's own update" if sharing.shown else "needs only sums over sites"
    if not shared:
        return paragraph(f"Nothing crosses the network: all {total:,} numbers of a site's state stay there.")
    words = (
        f"Of the {total:,} numbers of a site's state {shared:,} cross the network "
        f"({formatting.percent(shared / total)}), {total - shared:,} stay at the site. The coordinator {seen}."
    )
    rows = [
        [part.module, f"{part.numbers:,}", f"{part.shared:,}", f"{part.stays:,}"] for part in sharing.parts
    ]
    made = paragraph(words) + table(["part", "numbers", "cross", "stay"], rows)
    return made + _list_staying(sharing) if sharing.staying else made


def _list_staying(sharing: Sharing) -> str:
    rows = [[name, f"{size:,}"] for name, size in sharing.staying[:MOST_ROWS]]
    more = len(sharing.staying) - len(rows)
    words = formatting.counted(len(sharing.staying), "tensor")
    rest = paragraph(f"{more:,} more tensors stand in report.json.", "soft") if more > 0 else ""
    return (
        f"<details><summary>{escape(f'What stays: {words}')}</summary>"
        f"{table(['tensor', 'numbers'], rows)}{rest}</details>"
    )
