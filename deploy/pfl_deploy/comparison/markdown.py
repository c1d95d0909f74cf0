"""A comparison as Markdown, in percent: a table for each part of the data, then notes on how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pfl_common.methods import count_charged
from pfl_deploy.comparison.course import Courses
from pfl_deploy.comparison.paired import Paired
from pfl_deploy.comparison.plan import OWN_CONDITIONS, say
from pfl_deploy.comparison.result import REPORTED, Compared, Row
from pfl_deploy.report import formatting

MIB = 1 << 20
"""Papers call it a megabyte."""


def as_markdown(found: Compared) -> str:
    """Tables and notes."""
    parts = found.parts or ["test"]
    made = [_table(found, part, titled=len(parts) > 1) for part in parts]
    made += [_courses(found)] if any(row.courses for row in found.rows) else []
    return "\n\n".join([*made, "\n".join(f"- {note}" for note in tell(found))])


def _courses(found: Compared) -> str:
    """How each contestant came there: best and last, evenness over sites, what a target took."""
    target = formatting.percent(found.target)
    columns = ["", "best", "best less last", "deviation over sites", "variation"]
    head = [*columns, f"rounds to {target}", f"MiB a site to {target}"]
    lines = [_line(head), "|" + "---|" * len(head)]
    lines += [_line([row.contestant.name, *_course_cells(row.courses)]) for row in found.rows]
    return "How it came there\n\n" + "\n".join(lines)


def _course_cells(found: Courses | None) -> list[str]:
    if found is None:
        return [""] * 6
    shares = (found.best, found.overfitting, found.deviation, found.variation)
    return [*(f"{100 * share:.1f}" for share in shares), *_reached(found)]


def _reached(found: Courses) -> list[str]:
    if found.rounds is None or found.exchanged is None:
        return ["not reached", ""]
    some = "" if found.reached == found.seeds else f" ({found.reached} of {found.seeds} seeds)"
    return [f"{found.rounds:.1f}{some}", f"{found.exchanged / MIB:.2f}"]


def _table(found: Compared, part: str, *, titled: bool) -> str:
    sites = next((list(row.spread(part)) for row in found.rows if row.spread(part)), ["mean"])
    head = ["", *sites, f"against {found.plan.reference}", "settings"]
    lines = [_line(head), "|" + "---|" * len(head)]
    lines += [_line([row.contestant.name, *_cells(found, row, part, sites)]) for row in found.rows]
    title = f"{REPORTED[part].capitalize()}\n\n" if titled else ""
    return title + "\n".join(lines)


def _cells(found: Compared, row: Row, part: str, sites: list[str]) -> list[str]:
    spread = row.spread(part)
    shown = [_accuracy(spread[site].mean, spread[site].std) if site in spread else "" for site in sites]
    if row.failed:
        shown[-1] = f"failed: {row.failed}"
    shared = found.plan.shared
    own = {name: value for name, value in (row.choice.settings or {}).items() if shared.get(name) != value}
    return [*shown, _against(found, row, part), say(own)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _accuracy(mean: float, std: float) -> str:
    return f"{100 * mean:.1f} ± {100 * std:.1f}"


def _against(found: Compared, row: Row, part: str) -> str:
    """The difference, or why there is none; what differs beside the method stands in the same line."""
    if row.contestant.name == found.plan.reference or row.failed:
        return ""
    if row.differences.hindering:
        return f"not comparable: {'; '.join(row.differences.hindering)}"
    if part not in row.against:
        return ""
    conditions = [words for words in row.differences.own if words.startswith(OWN_CONDITIONS)]
    return _difference(row.against[part]) + "".join(f"; {words}" for words in conditions)


def _difference(paired: Paired) -> str:
    if paired.low is None or paired.high is None:
        return f"{formatting.points(paired.mean)} (one seed)"
    return f"{formatting.points(paired.mean)} ({formatting.points(paired.low)} to {formatting.points(paired.high)})"


def tell(found: Compared) -> Iterator[str]:
    """The notes needed to read the tables."""
    plan, seeds = found.plan, len(found.plan.seeds)
    if plan.reading.is_pooled:
        yield "The mean is over all test samples together: a site counts by how many it has."
    yield (
        f"Percent of each site's own samples after {formatting.counted(plan.rounds, 'round')}: "
        f"mean ± standard deviation over {formatting.counted(seeds, 'seed')}."
    )
    if seeds > 1:
        yield (
            f"Against {plan.reference}: difference of the means over sites, seed by seed, in points, with its 95 % "
            f"interval (Student's t, n = {seeds})."
        )
    if plan.shared or plan.common:
        yield f"All contestants: {say({**plan.common, **plan.shared})}."
    if plan.chooses:
        yield (
            f"Settings were chosen by mean validation accuracy after "
            f"{formatting.counted(plan.choosing_rounds, 'round')}, with a seed of their own."
        )
    if held := found.checked.say_held():
        yield f"{held[0].upper()}{held[1:]}."
    for row in found.rows:
        yield from _tell_row(row)
    if any(row.courses for row in found.rows):
        yield from _tell_courses(found)
    yield f"{found.runs} runs, {found.served} of them taken from the kept file."


def _tell_courses(found: Compared) -> Iterator[str]:
    """The meaning of the second table's columns."""
    reading = found.plan.reading
    best = (
        "each site at its own best round"
        if reading.best_mode == "per_client"
        else "the best round of each run"
    )
    yield (
        f"How it came there: means over seeds; best is {best}, {reading.words}; deviation and variation (deviation "
        "beside the average) over sites at the round with the best average. Bytes of a site are the content of its "
        "downloads and updates, without the first model."
    )
    for row in found.rows:
        charge = count_charged(found.checked.specs[row.contestant.name])
        if charge:
            yield (
                f"{row.contestant.name}: to each transfer {charge:,} bytes are added that its paper counts although "
                "they are not sent (paper_accounting)."
            )


def _tell_row(row: Row) -> Iterator[str]:
    name = row.contestant.name
    for edge in row.choice.edges:
        yield f"{name}: {edge.say()}."
    if row.choice.failed and row.choice.settings is not None:
        count = len(row.choice.tried)
        words = "; ".join(f"{one.outcome.reason} ({say(one.trial.varied)})" for one in row.choice.failed)
        yield f"{name}: {len(row.choice.failed)} of {count} settings tried failed: {words}."
    if row.failed:
        yield f"{name}: failed: {row.failed}."
    if row.differences.own and row.against:
        yield f"{name} differs from the reference in: {'; '.join(row.differences.own)}."
