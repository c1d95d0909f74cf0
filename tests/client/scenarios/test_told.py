"""What a site's log tells its engineer while nothing happens, and of a model that was made without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pfl_client.daemon import loop as story
from pfl_common.spec.messages import Assignment, Gathering, Over
from pfl_common.spec.run import Kind
from tests.client.support.scripted_site import FINISHED, Line, Trainer, assign, live


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ([assign(Kind.FINISH, 2), FINISHED], 1),
        ([assign(), assign(Kind.FINISH, 1, since=1), FINISHED], 0),
        ([assign(drop=True), assign(Kind.FINISH, 1, since=1), FINISHED], 0),
    ],
    ids=["never asked", "asked", "asked, and drawn to drop out"],
)
async def test_a_model_that_was_never_trained_here(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    work: list[Assignment | Over | Exception | None],
    said: int,
) -> None:
    """A site that got only the run's last model hears that no round was trained here, and what to do."""
    await live(Line(work), Trainer(), tmp_path / "state")
    told = "".join(capsys.readouterr())
    words = "the run ended before this site was asked to train: no round of its model was trained here"
    assert (said, said) == (told.count(words), told.count("--stay"))
    assert "without this site" not in told


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (Over("finished", counted=0), True),
        (Over("finished", counted=1), False),
        (FINISHED, False),
        (Over("failed", counted=0), False),
    ],
    ids=["never counted", "counted", "an older coordinator", "failed: nobody has a model"],
)
async def test_a_site_that_was_asked_and_never_counted(tmp_path: Path, over: Over, said: bool) -> None:
    """It trained, and the run took nothing of it: an error, with where to look."""
    with capture_logs() as lines:
        await live(Line([assign(), over]), Trainer(), tmp_path / "state")
    advice = [line["what_to_do"] for line in lines if line["log_level"] == "error" and "what_to_do" in line]
    assert said is any("pfl status" in words for words in advice)
    counted = [line["counted_in_rounds"] for line in lines if "counted_in_rounds" in line]
    assert ([] if over.counted is None else [str(over.counted)]) == counted


async def test_what_keeps_a_run_from_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said once as an error, and again when it is something else; what is odd about the classes is a warning."""
    answers = [
        Gathering(("they differ",)),
        Gathering(("they differ",)),
        None,
        Gathering(("they differ again",)),
    ]
    await live(Line([assign(), FINISHED], answers), Trainer(), tmp_path / "state")
    told = "".join(capsys.readouterr())
    assert [1, 1] == [told.count("why='they differ'"), told.count("why='they differ again'")]


@pytest.mark.parametrize(("seconds", "said"), [(3600.0, 1), (0.0, 3)])
async def test_a_run_that_has_not_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seconds: float,
    said: int,
) -> None:
    """A site that waits for others hears that all is well with this one: once, and again when that is long ago."""
    monkeypatch.setattr(story, "SAY_WAITING_SECONDS", seconds)
    await live(Line([assign(), FINISHED], [None, None, None]), Trainer(), tmp_path / "state")
    assert said == "".join(capsys.readouterr()).count("let in, waiting for the run to begin")


async def test_a_run_that_has_begun_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to wait for."""
    await live(Line([assign(), FINISHED]), Trainer(), tmp_path / "state")
    assert "waiting for the run" not in "".join(capsys.readouterr())
