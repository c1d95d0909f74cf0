"""What a site's engineer is told: numbers that were measured, under the name of what they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pfl_client.connection.link import Traffic
from pfl_client.daemon.progress import SiteProgress, in_bytes
from pfl_client.daemon.status import Watch
from pfl_common.evaluation import vector
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Kind, Task
from tests.client.support.scripted_site import FINISHED, Line, Trainer, assign, put_together, quick

assert quick  # nobody waits here


class Clock:
    """Seconds that pass when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


PRE: Scores = {"pre/test/combined": vector(3, 4, 0.5), "pre/validation/combined": vector(1, 4, 0.5)}
POST: Scores = {"post/test/combined": vector(4, 4, 0.1)}


def told(capsys: pytest.CaptureFixture[str], event: str) -> dict[str, str]:
    """The one line about this, by its names."""
    (line,) = [text for text in "".join(capsys.readouterr()).splitlines() if f"] {event}" in text]
    return dict(re.findall(r"(\w+)=('[^']*'|\S+)", line))


@pytest.mark.parametrize(
    ("scores", "accuracy"),
    [
        (PRE, {"accuracy_before_training": "0.75"}),
        (POST, {"accuracy_after_training": "1.0"}),
        (PRE | POST, {"accuracy_before_training": "0.75", "accuracy_after_training": "1.0"}),
        ({}, {}),
    ],
    ids=["pre", "post", "both", "no test data"],
)
def test_the_line_of_a_round(
    capsys: pytest.CaptureFixture[str], scores: Scores, accuracy: dict[str, str]
) -> None:
    """What was measured before the training is not told as what it led to; bytes are those since the last line."""
    watch, traffic, clock = Watch("hospital-a"), Traffic(), Clock()
    traffic.come("init", 1000)
    progress, task = SiteProgress(watch, traffic, clock=clock), Task(Kind.TRAIN, 3, 30)
    traffic.come("train", 70)
    progress.begin(task)
    clock.now += 2.5
    traffic.go("calls", 5)
    watch.run.learning = {"loss": 0.123456, "mask_density": 0.5}
    progress.end(task, scores)
    common = {"round": "3", "of": "30", "training_loss": "0.1235", "seconds": "2.5"}
    assert common | {"bytes_down": "70", "bytes_up": "5"} | accuracy == told(capsys, "round trained")
    progress.end(task, scores)
    again = told(capsys, "round trained")
    assert ("0", "0") == (again["bytes_down"], again["bytes_up"])


def test_a_measurement_has_one_moment(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is trained, nothing is before or after; without a network there are no bytes to tell."""
    progress = SiteProgress(Watch("hospital-a"), clock=Clock())
    progress.begin(Task(Kind.EVALUATE, 4, 30))
    progress.end(Task(Kind.EVALUATE, 4, 30), PRE)
    assert {"round": "4", "of": "30", "accuracy": "0.75", "seconds": "0.0"} == told(capsys, "measured")


def test_the_live_line() -> None:
    """What is done, how far, and what was measured last, with the round it was measured in."""
    watch, traffic, clock = Watch("hospital-a"), Traffic(), Clock()
    progress = SiteProgress(watch, traffic, clock=clock)
    assert "hospital-a | starting | down 0 B, up 0 B" == progress.line()
    watch.connected, task = True, Task(Kind.TRAIN, 3, 30)
    watch.run.rounds = 30
    for number in (2, 3):
        task = Task(Kind.TRAIN, number, 30)
        watch.begin(task)
        progress.begin(task)
        watch.give(task)
        watch.move(64)
        watch.move(36)
        if number == 2:
            assert "training 100 samples, 0 s" in progress.line(), "how many there will be is not known yet"
            watch.trainer.usual_samples = 1200
            progress.end(task, PRE)
    clock.now += 12
    traffic.come("train", 5_240_000)
    assert (
        "hospital-a | round 3 of 30 | training 100 of about 1200 samples, 12 s "
        "| accuracy before training 0.75 (round 2) | down 5.2 MB, up 0 B" == progress.line()
    )
    watch.connected = False
    assert "| no answer from the coordinator |" in progress.line()


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (5_240_000, "5.2 MB"), (2e9, "2.0 GB")]
)
def test_bytes_for_people(count: int, words: str) -> None:
    """In thousands, with the unit."""
    assert words == in_bytes(count)


async def test_rounds_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each round that was handed in, and how many there were at the end; a declined one has none."""
    trainer = Trainer()
    work = [assign(), assign(number=2, since=1, drop=True), assign(Kind.FINISH, 3, since=2), FINISHED]
    site = put_together(Line(work), trainer, tmp_path / "state")
    await site.run()
    said = "".join(capsys.readouterr())
    assert (1, 1) == (
        said.count("] round trained  "),
        said.count("] round trained, not sent: drawn to drop out"),
    )
    assert 1 == said.count("accuracy_is_measured='before each training, with the model as it comes'")
    (over,) = [line for line in said.splitlines() if "the run is over" in line]
    assert ("rounds_trained=2" in over, "measured_in_round=3" in over) == (True, True)


async def test_a_round_that_was_broken_off(tmp_path: Path) -> None:
    """The account says which round was not handed in, and counts only those that were trained."""
    site = put_together(
        Line([assign(), assign(number=2, since=1), RuntimeError()]), Trainer(), tmp_path / "s"
    )
    site.progress.begin(Task(Kind.TRAIN, 7, 30))
    assert {"rounds_trained": 0, "broke_off_round": 7} == site.progress.account()
    with pytest.raises(RuntimeError):
        await site.run()
    account = site.progress.account()
    assert (2, 2, None) == (
        account["rounds_trained"],
        account["measured_in_round"],
        account.get("broke_off_round"),
    )
