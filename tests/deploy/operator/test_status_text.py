"""What `pfl status` prints: where the run is, what is waited for, how good it was after which round."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from pydantic import JsonValue
from rich.console import Console

from pfl_common.spec.messages import NOT_SINCE, Event, Point, RunStatus, SiteStatus
from pfl_deploy.operator.commands import show
from pfl_deploy.operator.status_text import tell_ago, tell_rounds, tell_sentence, tell_stop
from tests.common.support.statuses import statuses
from tests.common.support.terminal_attacks import list_obeyed

SITES = tuple(SiteStatus(name, "here", 0.0, "waiting") for name in ("a", "b"))
GATHERING = RunStatus("", "dualfed", "gathering", 0, 5, 0, sites=SITES[:1], spec={"sites": 2})
CURVE = (
    Point(1, 10.0, 1.5, 3, 2, 1, 0.4321, 0.05, 0.3, 2_000_000, 1_500_000),
    Point(2, 12.0, 2.5, 3, 3, 0, None, None, None, 2_000_000, 1_500_000),
)
RUNNING = RunStatus(
    "run-1", "dualfed", "running", 3, 5, 1, awaited=("b",), sites=SITES, curve=CURVE, opened=13.0
)


def printed(status: RunStatus, width: int = 160) -> list[str]:
    """The lines that a person sees."""
    console = Console(file=io.StringIO(), width=width)
    show(status, console)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_while_it_gathers() -> None:
    """Who is waited for and what was asked for: never a round 0 of 0."""
    assert [
        "no run yet  dualfed  gathering  1 of 2 sites are here",
        "The run of 5 rounds begins by itself when all have come.",
    ] == printed(GATHERING)[:2]


def test_while_it_runs() -> None:
    """An accuracy is said with the round after which it holds, which is not the last one that was closed."""
    assert [
        "run-1  dualfed  running  round 3 of 5",
        "Waiting for b.",
        "43.2 % mean accuracy after round 1, ± 5.0 over the sites; 30.0 % at the worst tenth",
        "round 2: 3 of 3 counted; 1.5 MB from the sites, 2.0 MB to them; 2.5 s",
        "7.0 MB moved in closed rounds",
    ] == printed(RUNNING)[:5]


def test_where_rounds_are_left_out_what_moved_is_about_so_much() -> None:
    """Round 5 stands for 3 to 5: 3.5 MB twice and three times 2.5 MB, in the words of the status page."""
    thinned = (*CURVE, replace(CURVE[1], round=5, bytes_down=1_000_000))
    assert "about 14.5 MB" in printed(replace(RUNNING, curve=thinned))[4]


def test_the_sites() -> None:
    """Where each is, what it is at and when it was heard; what a phase says already is not said twice."""
    sites = (
        SiteStatus("a", "here", 0.0, "working (train 3)", "working"),
        SiteStatus("b", "away", 7.0, "waiting", "waiting"),
    )
    table = printed(replace(RUNNING, sites=sites))[5:-1]
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in table]
    assert ["site", "state", "phase", "last heard", "counted", "doing"] == cells[1]
    assert ["a", "here", "working", "now", "0", "working (train 3)"] == cells[3]
    assert ["b", "away", "waiting", "7 s ago", "0", ""] == cells[4]


def test_many_awaited_are_counted_and_named() -> None:
    """The sentence stays short, the list is whole."""
    lines = printed(replace(RUNNING, awaited=("a", "b", "c", "d")))
    assert ["Waiting for 4 sites.", "awaited: a, b, c, d"] == lines[1:3]


def test_a_failure_comes_first() -> None:
    """The coordinator's own words, as they are and no markup."""
    assert "[b]the disk[/b]" == printed(replace(RUNNING, status="failed", words="[b]the disk[/b]"))[1]


def test_where_the_time_goes_what_was_asked_for_and_what_happened() -> None:
    """The facts of the status page that are no table: the newest events, in a peer's own words and no markup."""
    events = tuple(
        Event(20.0 - place, "warning" if place else "info", f"[b]{place}[/b]") for place in range(9)
    )
    told = replace(RUNNING, now=21.0, phases={"load": 0.25, "train": 3.5}, events=events)
    assert [
        "seconds by phase: train 3.50, load 0.25",
        "now: [b]0[/b]",
        *(f"{place + 1} s ago: warning: [b]{place}[/b]" for place in range(1, 5)),
        "asked for: sites=2, seed=0",
    ] == printed(replace(told, spec={"sites": 2, "backbone": "", "seed": 0}))[-7:]


@given(statuses)
def test_whatever_can_be_read_can_be_shown(status: RunStatus) -> None:
    """However odd the numbers and the facts: no error, and nothing that a terminal would obey."""
    shown = [*printed(status), tell_stop(status)]
    assert [] == [line for line in shown[:-1] if list_obeyed(line)]


@pytest.mark.parametrize("sites", ["many", None, [2], {}])
def test_a_number_of_sites_that_is_none(sites: JsonValue) -> None:
    """Facts of a specification may be anything: then nobody knows whether all have come."""
    told = replace(GATHERING, spec={"sites": sites})
    for fact in ("5 rounds", "begins by itself"):
        assert fact in tell_sentence(told)


@pytest.mark.parametrize(("status", "closed"), [("finished", "5 rounds"), ("stopped", "2 rounds")])
def test_who_has_not_got_the_model_of_a_run_that_is_over(status: str, closed: str) -> None:
    """Named, with what has to be done for it."""
    over = replace(RUNNING, status=status, opened=0.0)
    for fact in (closed, ": b.", "comes back while the coordinator runs"):
        assert fact in tell_sentence(over)
    everybody = tell_sentence(replace(over, awaited=()))
    assert closed in everybody
    assert "comes back" not in everybody
    called_off = tell_sentence(replace(GATHERING, status="stopped"))
    assert "0 rounds" in called_off
    assert "model" not in called_off


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            RUNNING,
            "the run ends after the round at work; sites that are away get their model when they come back",
        ),
        (
            replace(RUNNING, opened=0.0),
            "no round is at work: the run ends now; sites that are away get their model",
        ),
        (
            replace(RUNNING, status="finishing"),
            "the rounds are over already; sites that are away get their model",
        ),
        (GATHERING, "the run is called off before it has begun"),
    ],
    ids=["a round is at work", "none is", "finishing", "gathering"],
)
def test_what_comes_of_a_stop(status: RunStatus, words: str) -> None:
    """As the run stands."""
    assert tell_stop(status).startswith(words)


def test_what_was_asked_for_folds_between_facts() -> None:
    """The last lines of a narrow terminal: every fact whole, a method's settings beside the others, no braces."""
    spec: dict[str, JsonValue] = {
        "sites": 2,
        "shape": [1, 8, 8],
        "classes": ["zero", "one"],
        "drop": None,
        "settings": {"lr": 0.1, "head": "cosine", "warm": {"on": True}, "none": {}},
    }
    assert [
        "asked for: sites=2, shape=1x8x8,",
        "classes=zero/one, lr=0.1, head=cosine,",
        "warm.on=true",
    ] == printed(replace(RUNNING, spec=spec), width=40)[-3:]


def test_what_was_chosen_by_the_data_is_told_in_its_own_words() -> None:
    """A line each, before what was asked for."""
    chosen: JsonValue = {"image size": "168x224, and why", "pixel range": "0..4095"}
    assert [
        "image size: 168x224, and why",
        "pixel range: 0..4095",
        "asked for: seed=0",
    ] == printed(replace(RUNNING, spec={"chosen": chosen, "seed": 0}))[-3:]


@pytest.mark.parametrize(
    ("measured", "words"), [(0, "± 5.0 over the sites"), (1, "of 1 site"), (4, "± 5.0 over 4 sites")]
)
def test_an_accuracy_says_over_how_many_sites_it_is(measured: int, words: str) -> None:
    """A mean leaps when a site is away: the reader sees why. An older coordinator does not say it."""
    told = next(tell_rounds((replace(CURVE[0], measured=measured),)))
    assert f"43.2 % mean accuracy after round 1, {words}; 30.0 % at the worst tenth" == told


def test_nothing_is_said_of_what_nobody_measured() -> None:
    """Before the first measurement there is no accuracy."""
    assert [] == list(tell_rounds(()))
    assert not any("accuracy" in line for line in tell_rounds(CURVE[1:]))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "now"),
        (1.6, "2 s ago"),
        (99.4, "99 s ago"),
        (99.6, "2 min ago"),
        (5940.0, "99 min ago"),
        (7200.0, "2 h ago"),
        (172_800.0, "2 d ago"),
        (NOT_SINCE, "not since the restart"),
    ],
)
def test_how_long_ago(seconds: float, words: str) -> None:
    """In one unit that says it best."""
    assert words == tell_ago(seconds)


def test_one_that_may_end_early() -> None:
    """How it stands while it runs; at its end how many rounds are done, and why no more."""
    assert "2 of 3 without a gain" in printed(replace(RUNNING, patience="2 of 3 without a gain"))
    over = replace(RUNNING, status="finished", opened=0.0, awaited=(), words="ended early: no gain")
    said = printed(over)
    assert "ended early: no gain" == said[1]
    assert said[2].startswith("2 of 5 rounds are done.")
