"""A run's status in words, the same as on the status page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from pydantic import JsonValue

from pfl_common.evaluation import tell_too_few
from pfl_common.spec.messages import NOT_SINCE, Point, RunStatus
from pfl_common.spec.run import ClientId
from pfl_deploy.report import formatting

NAMED = 3
"""Awaited sites that are named in a sentence; of more the number is said."""
MOST_NAMES = 12
OVER = ("finishing", "finished", "stopped")
RECENT = 5
"""Events that are told; the status page and `--json` have more."""


def tell_place(status: RunStatus) -> str:
    """How far the run is; while it gathers, how many of its sites have come."""
    if status.status == "gathering":
        return _tell_gathered(status)
    if not status.run:
        return ""
    if status.status != "running" or status.opened:
        again = f", attempt {status.attempt}" if status.attempt > 1 else ""
        return f"round {status.round} of {status.rounds}{again}"
    closed = _count_closed(status)
    return f"after round {closed} of {status.rounds}" if closed else f"before round 1 of {status.rounds}"


def tell_sentence(status: RunStatus) -> str:
    """What the run waits for, or how it ended; nothing where the coordinator's own words say it."""
    match status.status:
        case "gathering":
            return _tell_beginning(status)
        case "running":
            return _tell_awaited(status) if status.opened else _tell_between(status)
        case "finishing":
            absent = f" Not done yet: {tell_names(status.awaited)}." if status.awaited else ""
            return f"The rounds are over; every site gets its model.{absent}"
        case "finished":
            return f"{_tell_done(status)} {_tell_models(status)}"
        case "stopped":
            models = f" {_tell_models(status)}" if status.run else ""
            return f"Ended by the operator after {_count(_count_closed(status), 'round')}.{models}"
        case _:
            return ""


def tell_stop(status: RunStatus) -> str:
    """The consequence of stopping a run in this state."""
    later = "sites that are away get their model when they come back while the coordinator runs"
    if status.status == "gathering":
        return "the run is called off before it has begun"
    if status.status == "finishing":
        return f"the rounds are over already; {later}"
    if status.opened:
        return f"the run ends after the round at work; {later}"
    return f"no round is at work: the run ends now; {later}"


def tell_troubles(status: RunStatus) -> Iterator[str]:
    """Problems the operator must not overlook: sites without a part in the training, sites that were refused."""
    never = [line.site for line in status.sites if not line.counted]
    # An older coordinator counts nobody.
    some = 0 < len(never) < len(status.sites)
    if some and status.status in OVER and (closed := _count_closed(status)):
        rounds = _count(closed, "round")
        yield f"Counted in none of {rounds}: {tell_names(never)}. The result knows nothing of their data."
    for site, words in status.refused.items():
        yield f"{site} was not taken: {words}"


def tell_waiting(status: RunStatus) -> Iterator[str]:
    """Sites that wait for the operator's approval."""
    for site, fingerprint in status.waiting.items():
        yield f"{site} waits to be approved, keys {fingerprint}: pfl approve {site}, or pfl deny {site}"


def tell_warnings(status: RunStatus) -> Iterator[str]:
    """Oddities in the sites' data, as they and the coordinator report them."""
    yield from status.warnings
    for line in status.sites:
        yield from (f"{line.site}: {words}" for words in line.warnings)


def tell_rounds(curve: Sequence[Point], fewest: int = 0) -> Iterator[str]:
    """How good the model was after the last round of which that is known, and how the last round went. Over fewer than
    `fewest` sites the coordinator tells no mean.
    """
    newest = next((point for point in reversed(curve) if point.accuracy is not None), None)
    if newest is not None:
        mean, worst = (_percent(value or 0.0) for value in (newest.accuracy, newest.worst_decile))
        yield f"{mean} mean accuracy after round {newest.round}, {_tell_across(newest)}; {worst} at the worst tenth"
    elif measured := next((point.measured for point in reversed(curve) if point.measured), 0):
        yield f"accuracy of {tell_too_few(measured, fewest)}"
    if curve:
        last = curve[-1]
        moved = f"{last.bytes_up / 1e6:.1f} MB from the sites, {last.bytes_down / 1e6:.1f} MB to them"
        yield f"round {last.round}: {last.counted} of {last.cohort} counted; {moved}; {last.seconds:.1f} s"
        yield f"{_tell_moved(curve)} moved in closed rounds"


def _tell_moved(curve: Sequence[Point]) -> str:
    """Both ways, from the first round on; where rounds are left out, each stands for those before it."""
    rounds = [point.round for point in curve]
    steps = [1, *(after - before for before, after in pairwise(rounds))]
    moved = sum(step * (point.bytes_down + point.bytes_up) for step, point in zip(steps, curve, strict=True))
    about = "about " if len(curve) > 1 and rounds[-1] - rounds[0] >= len(curve) else ""
    return about + formatting.size(moved)


def tell_rest(status: RunStatus) -> Iterator[str]:
    """Where the time goes, what happened last, and what was asked for."""
    if status.phases:
        spent = sorted(status.phases.items(), key=lambda phase: -phase[1])
        yield "seconds by phase: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent)
    for event in status.events[:RECENT]:
        level = "" if event.level == "info" else f"{event.level}: "
        yield f"{tell_ago(max(0.0, status.now - event.at))}: {level}{event.words}"
    # What was chosen by the data are sentences: each has a line of its own.
    chosen = status.spec.get("chosen")
    for what, words in chosen.items() if isinstance(chosen, dict) else ():
        yield f"{what}: {words}"
    facts = {name: value for name, value in status.spec.items() if name != "chosen"}
    asked = [f"{name}={value}" for name, value in _flatten(facts)]
    if asked:
        yield "asked for: " + ", ".join(asked)


def tell_ago(seconds: float) -> str:
    """How long ago something was, in one unit; of what was before a restart nobody knows."""
    if seconds == NOT_SINCE:
        return "not since the restart"
    if seconds < 1.5:
        return "now"
    for size, unit, limit in ((1, "s", 100), (60, "min", 100), (3600, "h", 48)):
        if round(seconds / size) < limit:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} d ago"


def tell_names(sites: Sequence[ClientId]) -> str:
    """Names in a row; of many the first few."""
    more = len(sites) - MOST_NAMES
    return ", ".join(sites[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _tell_done(status: RunStatus) -> str:
    closed, rounds = _count_closed(status), _count(status.rounds, "round")
    return f"{closed} of {rounds} are done." if 0 < closed < status.rounds else f"All {rounds} are done."


def _tell_models(status: RunStatus) -> str:
    if not status.awaited:
        return "Every site that was here has its model."
    lacking = f"Without the model so far: {tell_names(status.awaited)}."
    return f"{lacking} A site that was away gets it when it comes back while the coordinator runs."


def _tell_across(point: Point) -> str:
    # A mean leaps when a site is away: over how many it is belongs to it.
    if point.measured == 1:
        return "of 1 site"
    over = _count(point.measured, "site") if point.measured else "the sites"
    return f"± {100 * (point.spread or 0.0):.1f} over {over}"


def _flatten(facts: Mapping[str, JsonValue], within: str = "") -> Iterator[tuple[str, str]]:
    """Facts as name and value, without spaces: the terminal folds between them. A method's settings need no prefix."""
    for name, value in facts.items():
        match value:
            case None | "":  # "chosen by the data": what was chosen has a name of its own
                continue
            case dict():
                yield from _flatten(value, "" if name == "settings" else f"{within}{name}.")
            case list():
                yield within + name, ("x" if name == "shape" else "/").join(map(_tell_value, value))
            case _:
                yield within + name, _tell_value(value)


def _tell_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _tell_gathered(status: RunStatus) -> str:
    wanted = status.spec.get("sites", "")
    of = f" of {wanted}" if wanted else ""
    return f"{_count_here(status)}{of} {'site is' if wanted == 1 else 'sites are'} here"


def _tell_beginning(status: RunStatus) -> str:
    run = f"The run of {_count(status.rounds, 'round')}" if status.rounds else "The run"
    if status.words:
        return f"{run} does not begin yet."
    wanted = status.spec.get("sites")
    if isinstance(wanted, int) and _count_here(status) >= wanted:
        return f"All have come. {run} is being made ready."
    return f"{run} begins by itself when all have come."


def _tell_awaited(status: RunStatus) -> str:
    if not status.awaited:
        return "The round is being closed."
    many = len(status.awaited) > NAMED
    return f"Waiting for {_count(len(status.awaited), 'site') if many else tell_names(status.awaited)}."


def _tell_between(status: RunStatus) -> str:
    if _count_closed(status) >= status.rounds:
        return "The last round is closed."
    here = _count_here(status)
    if here == len(status.sites):
        return "The next round is about to begin."
    return f"The next round begins when enough sites are here: now {here} of {len(status.sites)}."


def _count_here(status: RunStatus) -> int:
    return sum(site.state == "here" for site in status.sites)


def _count_closed(status: RunStatus) -> int:
    return status.curve[-1].round if status.curve else 0


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def _count(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"
