"""What a site's log says of a run as a whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from pfl_client.daemon.run_summary import tell_end, tell_hindrances
from pfl_common.spec.messages import Blob, Gathering, Joined, Over


def end(
    over: Over,
    *,
    marks: tuple[int, ...] = (1,),
    model: str | None = "m",
    best: str | None = None,
    stays: bool = False,
) -> list[Any]:
    """The lines for this end, at a site with these generations and this model."""
    folder: Any = SimpleNamespace(vault=SimpleNamespace(marks=lambda: marks), model=model, best_model=best)
    with capture_logs() as said:
        tell_end(over, folder, {"rounds": 3}, stays=stays)
    return said


def test_a_site_that_had_its_part() -> None:
    """One line, with the rounds it was counted in if the coordinator said so."""
    (line,) = end(Over("done", "", 2))
    assert ("info", "2", "m", 3) == (
        line["log_level"],
        line["counted_in_rounds"],
        line["model"],
        line["rounds"],
    )
    assert not {"words", "best_model"} & line.keys()
    assert "counted_in_rounds" not in end(Over("done", "", None))[0]


def test_a_site_that_keeps_the_best() -> None:
    """Where both models lie, and why the run ended before its last round."""
    (line,) = end(Over("finished", "ended early", 2), best="b")
    assert ("m", "b", "ended early") == (line["model"], line["best_model"], line["words"])


def test_a_site_that_was_never_counted() -> None:
    """It trained for nothing: an error. A coordinator that does not tell is no reason for one."""
    assert ["info", "error"] == [line["log_level"] for line in end(Over("done", "", 0))]
    assert 1 == len(end(Over("done", "", None)))


@pytest.mark.parametrize(
    ("model", "stays", "words", "advice"),
    [
        (None, False, "without this site", "start pfl-client then"),
        ("m", False, "before this site was asked", "start pfl-client then"),
        ("m", True, "before this site was asked", "nothing: this site waits"),
    ],
)
def test_a_site_that_was_not_asked(model: str | None, stays: bool, words: str, advice: str) -> None:
    """With the run's model or without; one that stays has nothing to do."""
    line = end(Over("done", "", 0), marks=(), model=model, stays=stays)[1]
    assert "warning" == line["log_level"]
    assert words in line["event"]
    assert advice in line["what_to_do"]


def test_a_run_that_failed_is_no_fault_of_the_site() -> None:
    """One error with the reason, and no advice about a part in it."""
    (line,) = end(Over("failed", "training diverged", 0), marks=())
    assert ("error", "training diverged") == (line["log_level"], line["words"])


def test_a_hindrance_is_said_once_while_it_holds() -> None:
    """Once it is gone and comes back it is said again."""
    gathering, known = Gathering(("b", "a")), Joined("", Blob("", 0), warnings=("c",))
    with capture_logs() as said:
        held = tell_hindrances(gathering, {"a"})
        assert {"a", "b"} == held
        assert held == tell_hindrances(gathering, held)
        assert set() == tell_hindrances(None, held)
        assert {"c"} == tell_hindrances(known, set())
    assert [("error", "b"), ("warning", "c")] == [
        (line["log_level"], line.get("why") or line["warning"]) for line in said
    ]
