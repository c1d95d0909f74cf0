"""The page's part about cost: bytes and rounds to a target, time by phase, sites lost on the way."""

from __future__ import annotations

from pfl_deploy.report import formatting
from pfl_deploy.report.charts import svg
from pfl_deploy.report.charts.model import Chart
from pfl_deploy.report.facts import Facts, Target, count_by_site, count_reasons, find_reached, sum_phases
from pfl_deploy.report.formatting import counted
from pfl_deploy.report.page.html import card, legend, long_table, pair, paragraph, section, table
from pfl_deploy.report.sources.coordinator import Tried
from pfl_server.telemetry.counters import SITE_PHASES

MOST_NAMED = 4
"""Sites that are named where more would only be counted."""
_PHASE_WORDS = {
    "wait": "waiting for enough sites",
    "seal": "preparing and sealing downloads",
    "download": "a site's download",
    "work": "a site's work",
    "upload": "a site's upload",
    "verify": "verifying an update",
    "fold": "adding updates up",
    "commit": "writing the checkpoint",
}


def say_bytes(facts: Facts) -> str:
    """Which bytes the page shows."""
    return _say_source(facts) + "".join(
        f"; to each transfer of {told.name} {told.traffic.charge:,} bytes are added that its paper counts although "
        "they are not sent (paper_accounting)"
        for told in facts.all
        if told.traffic.charge
    )


def _say_source(facts: Facts) -> str:
    if facts.measured_bytes:
        return "those the coordinator counted as they crossed, in both directions and over all sites"
    bound = " at the most" if any(told.traffic.at_most for told in facts.all) else ""
    return (
        f"those of the sealed parcels that the specification pins{bound}, in both directions and over all sites: "
        "not every run here was played over a network and counted"
    )


def tell_communication(facts: Facts) -> str:
    """Rounds, bytes and time until a mean accuracy was reached; what crossed in all, by kind."""
    rows = [row for target in facts.targets for row in _target_rows(target, facts)]
    kinds = [[name, f"{size:,}", formatting.size(size)] for name, size in facts.run.traffic.kinds.items()]
    head = ["mean accuracy", "", "rounds", "both ways", "bytes", "time"]
    parts = [
        table(head, rows, numbers_from=2) if rows else "",
        paragraph(
            f"The first state whose mean accuracy on test data is at least so much. Bytes are {say_bytes(facts)}; "
            "the first model, which every site takes when it joins, is among those of round 1.",
            "soft",
        ),
    ]
    if kinds:
        parts += [
            table(["what crossed, as the coordinator counted", "bytes", ""], kinds),
            paragraph(
                "Over all rounds, repeated parts included; without what crosses before the first round, after the "
                "last one, or in an attempt that a restart broke off.",
                "soft",
            ),
        ]
    return section("communication", "What it took to get there", *parts)


def _target_rows(target: Target, facts: Facts) -> list[list[str]]:
    """A target's name stands once, before the first of the runs."""
    rows = []
    name = formatting.percent(target.accuracy, 2)
    name += f" ({formatting.percent(target.share, 0)} of the best)" if target.share else ""
    for told in facts.all:
        found = find_reached(told, target.accuracy, measured=facts.measured_bytes)
        cells = ["not reached", "", "", ""]
        if found:
            crossed = formatting.size(found.bytes), f"{found.bytes:,}"
            cells = [str(found.round), *crossed, _seconds(found.seconds)]
        rows.append([name if told is facts.run else "", told.name, *cells])
    return rows


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else formatting.duration(seconds)


def tell_time(facts: Facts, charts: dict[str, Chart]) -> str:
    """Seconds by round and by phase."""
    found = sum_phases(facts.run.record)
    cards = [
        card(title, svg.draw(charts[name]))
        for name, title in (("round_seconds", "Seconds by round"), ("phases", "Mean seconds by phase"))
        if name in charts
    ]
    if not cards:
        return ""
    rows = [
        [
            _PHASE_WORDS.get(phase, phase),
            "a counted update" if phase in SITE_PHASES else "a round",
            f"{mean:.3f}",
            f"{total:.1f}",
        ]
        for phase, (total, mean) in sorted(found.items(), key=lambda item: -item[1][0])
    ]
    return section(
        "time",
        "Where the time went",
        pair(cards),
        table(["phase", "mean of", "mean (s)", "in all (s)"], rows, numbers_from=2),
        paragraph(
            "Seen from the coordinator. What sites do, they do at the same time: their seconds add up to more than "
            "a round's.",
            "soft",
        ),
    )


def tell_losses(facts: Facts, charts: dict[str, Chart]) -> str:
    """Updates that did not come, attempts that were given up, and each site\'s part in it."""
    record = facts.run.record
    lost = sum(len(tried.losses) for tried in record.attempts)
    given_up = [tried for tried in record.attempts if tried.status == "abandoned"]
    asked = sum(len(tried.cohort) for tried in record.attempts)
    words = (
        f"{counted(asked, 'update')} asked for, {_none(lost)} {'update' if lost == 1 else 'updates'} lost, "
        f"{_none(len(given_up))} {'attempt' if len(given_up) == 1 else 'attempts'} at a round given up."
    )
    parts = [paragraph(words)]
    if "updates" in charts:
        parts.append(pair([card("Updates counted and lost, by attempt", svg.draw(charts["updates"]))]))
        parts.append(legend({"run": "counted", "lost": "lost"}))
    if lost:
        reasons = [[reason, str(count)] for reason, count in count_reasons(record.attempts).items()]
        parts.append(table(["why none came", "times"], reasons))
    if given_up:
        rows = [[str(t.round), str(t.attempt), t.reason, _say_losses(t)] for t in given_up]
        head = ["round", "attempt", "given up because", "lost in it"]
        parts.append(long_table(head, rows, "attempts", numbers_from=9))
    counts = sorted(count_by_site(record).items(), key=lambda item: (-item[1][2], item[0]))
    rows = [[site, *(str(number) for number in numbers)] for site, numbers in counts]
    parts.append(long_table(["site", "asked", "counted", "lost"], rows, "sites"))
    return section("losses", "Who took part, and who was lost", *parts)


def _say_losses(tried: Tried) -> str:
    """Few sites by name, many by number."""
    if len(tried.losses) <= MOST_NAMED:
        return ", ".join(f"{site}: {_cut(reason)}" for site, reason in sorted(tried.losses.items()))
    return ", ".join(f"{count} × {reason}" for reason, count in count_reasons([tried]).items())


def _cut(words: str, most: int = 80) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _none(count: int) -> str:
    return f"{count:,}" if count else "no"
