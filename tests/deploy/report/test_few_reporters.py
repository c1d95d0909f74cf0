"""A report without means over few sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pfl_common.evaluation import add, vector
from pfl_deploy.report.few_reporters import hide_few, tell_hidden
from pfl_deploy.report.sources.coordinator import Record, Tried
from pfl_server.telemetry.course import Course
from tests.client.policy.policies import pin

SITES = ("a", "b", "c")
TOLD = {"told/loss": [6.0, 12.0, 3.0]}


def record(reporters: int) -> Record:
    """A run of three sites of which so many have measured a validation part, and all a test."""
    tested = add([{"pre/test/combined": vector(3, 4, 0.5)}] * 3)
    validated = add([{"pre/validation/combined": vector(3, 4, 0.5)}] * reporters)
    course = Course(1, 1, 0.0, 1.0, {}, {}, diagnostics={"overlap": 0.5})
    tried = Tried(1, 1, "committed", SITES, (), SITES, {}, "", 3, course)
    known = dict.fromkeys(SITES, 8)
    return Record(
        Path(),
        pin(),
        "running",
        "",
        SITES,
        known,
        {},
        (tried,),
        {"000001-1-train": tested | validated | TOLD},
        {},
    )


def test_who_owns_all_sites_sees_everything() -> None:
    """A simulation and the demo do; also where nobody may be hidden."""
    whole = record(2)
    assert whole == hide_few(whole, SITES, 5)
    assert whole == hide_few(whole, (), 1)
    assert [] == list(tell_hidden(whole, whole, 5))


def test_each_mean_by_its_own_number_of_sites() -> None:
    """Three is enough here for the test and what training said; the validation of two is not told."""
    shown = hide_few(record(2), ("a", "b"), 3)
    assert ["pre/test/combined", "told/loss"] == sorted(shown.scores["000001-1-train"])
    assert {"overlap": 0.5} == shown.attempts[0].course.diagnostics  # type: ignore[union-attr]  # it has one
    (words,) = tell_hidden(record(2), shown, 3)
    assert "2 sites: the mean over fewer than 3 is not shown" in words


def test_what_the_method_found_in_few_updates() -> None:
    """It is hidden with them; an attempt of an older release has none."""
    shown = hide_few(record(3), (), 5)
    assert {"000001-1-train": {}} == shown.scores
    assert {} == shown.attempts[0].course.diagnostics  # type: ignore[union-attr]  # it has one
    bare = replace(record(3), attempts=(replace(record(3).attempts[0], course=None),))
    assert hide_few(bare, (), 5).attempts == bare.attempts
