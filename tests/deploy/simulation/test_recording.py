"""What a journal says of a run, and what follows from it for a replay: by hand, without a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pfl_common.errors import StateError
from pfl_common.spec.run import Model, RunSpec
from pfl_deploy.simulation.replay import Recording, Screenplay
from pfl_server.decisions.sampling import Draw


def played(
    number: int, *, cohort: str, counted: str, losses: dict[str, str], attempt: int = 1
) -> dict[str, object]:
    """A row of a journal; sites have names of one letter."""
    return {
        **{"round": number, "attempt": attempt, "status": "committed", "candidates": list("abcd")},
        **{"cohort": list(cohort), "drops": [], "counted": list(counted), "losses": losses, "reason": ""},
    }


def abandoned(number: int, *, cohort: str, losses: dict[str, str]) -> dict[str, object]:
    """A row of an attempt that was given up."""
    return played(number, cohort=cohort, counted="", losses=losses) | {
        "status": "abandoned",
        "reason": "too few",
    }


def recorded(*rows: dict[str, object], handed: dict[str, dict[str, int]] | None = None) -> Recording:
    """What a journal with these rows and handed says."""
    spec = RunSpec(
        "run-1",
        "fedcac",
        {},
        Model("resnet8", (1, 8, 8), ("x", "y")),
        rounds=9,
        seed=0,
        roster=("a", "b", "c"),
    )
    journal = SimpleNamespace(
        spec=spec.to_json, rounds=lambda: list(rows), handed=lambda: handed or {}, fallbacks=dict
    )
    return Recording.of(journal, checkpoints=range(1, 10))


def drawn(recording: Recording, number: int, *, here: str = "abcd") -> tuple[str, str]:
    """A round's cohort and its drop-outs."""
    draw = recording.draw(number, set(here))
    return "".join(draw.cohort), "".join(sorted(draw.drops))


def test_the_counted_train_and_the_dropped_do_too() -> None:
    """Who said that it dropped out, or sent what was refused, has trained; who declined has not."""
    losses = {"b": "dropped", "c": "refused:digest", "d": "diverged"}
    assert ("abc", "bc") == drawn(recorded(played(1, cohort="abcd", counted="a", losses=losses)), 1)


@pytest.mark.parametrize("reason", ["lease", "deadline", "left", "disk_full"])
@pytest.mark.parametrize(("since", "cohort"), [(0, "a"), (1, "a"), (2, "ab")])
def test_a_lost_site_trained_if_its_next_task_began_there(reason: str, since: int, cohort: str) -> None:
    """A site that was killed does not say how far it was: the state it began its next task with does."""
    recording = recorded(
        played(1, cohort="a", counted="a", losses={}),
        played(2, cohort="ab", counted="a", losses={"b": reason}),
        played(3, cohort="ab", counted="ab", losses={}),
        handed={"000003-1-train": {"b": since}},
    )
    assert cohort == drawn(recording, 2)[0]


@pytest.mark.parametrize("key", ["000003-1-evaluate", "000003-2-train", "000002-1-finish"])
def test_any_later_task_tells(key: str) -> None:
    """A measurement, another attempt, or the end of the run, which is called after its last round."""
    recording = recorded(played(2, cohort="ab", counted="a", losses={"b": "lease"}), handed={key: {"b": 2}})
    assert ("ab", "b") == drawn(recording, 2)


def test_a_task_of_the_same_round_tells_nothing() -> None:
    """What a site began this round with says nothing of how it left it."""
    handed = {"000002-1-train": {"b": 1}, "000002-2-train": {"b": 1}, "000004-1-train": {"b": 2}}
    recording = recorded(played(2, cohort="ab", counted="a", losses={"b": "lease"}), handed=handed)
    assert ("ab", "b") == drawn(recording, 2)


def test_the_next_task_tells_and_not_a_later_one() -> None:
    """Lost before it trained in round 2, a site may well hold round 5 later."""
    handed = {"000003-1-train": {"b": 1}, "000006-1-train": {"b": 5}}
    recording = recorded(played(2, cohort="ab", counted="a", losses={"b": "lease"}), handed=handed)
    assert ("a", "") == drawn(recording, 2)


def test_who_was_never_heard_again_was_absent() -> None:
    """Nothing that the coordinator holds depends on it."""
    assert ("a", "") == drawn(recorded(played(1, cohort="ab", counted="a", losses={"b": "lease"})), 1)


def test_a_round_that_counted_nobody() -> None:
    """All of its cohort were drawn to drop out."""
    recording = recorded(played(1, cohort="ab", counted="", losses={"a": "dropped", "b": "dropped"}))
    assert ("ab", "ab") == drawn(recording, 1)


def test_a_site_without_a_folder_is_left_out_of_what_does_not_count() -> None:
    """It trained and dropped out; no other site ever sees that."""
    recording = recorded(played(1, cohort="abc", counted="a", losses={"b": "dropped", "c": "dropped"}))
    assert ("ac", "c") == drawn(recording, 1, here="acd")


def test_abandoned_attempts_are_left_out() -> None:
    """Sites roll back what they trained in them: the attempt that was committed is the round."""
    recording = recorded(
        abandoned(1, cohort="abc", losses={"a": "dropped", "b": "lease", "c": "lease"}),
        played(1, cohort="bc", counted="b", losses={"c": "dropped"}, attempt=2),
        abandoned(2, cohort="abc", losses={"a": "lease"}),
    )
    assert ("bc", "c") == drawn(recording, 1)
    assert [1] == list(recording.rounds)


def test_the_script_ends_the_run_in_its_last_round() -> None:
    """A run that was stopped has fewer rounds than its specification, and so has one that is going on."""
    rows = [played(n, cohort="ab", counted="ab", losses={}) for n in (1, 2, 3)]
    script, ends = Screenplay(recorded(*rows), "ab"), []
    script.end = lambda: ends.append("end")
    assert (("a", "b", "c", "d"), Draw(("a", "b"), frozenset())) == script.draw(1)
    script.draw(2)
    assert [] == ends
    script.draw(3)
    assert ["end"] == ends


def test_a_site_that_lost_its_state() -> None:
    """Its folder was emptied in mid-run: what it trained from then on cannot be played again, and is not tried."""
    rows = [played(n, cohort="ab", counted="ab", losses={}) for n in (1, 2, 3)]
    whole = {"000002-1-train": {"a": 1, "b": 1}, "000003-1-train": {"a": 2, "b": 2}}
    recorded(*rows, handed=whole).check()
    with pytest.raises(StateError, match=r"b .*round 3 .*round 0.*round 2"):
        recorded(*rows, handed=whole | {"000003-1-train": {"a": 2, "b": 0}}).check()
