"""A site's numbers as its tasks change them."""

from __future__ import annotations

from dataclasses import replace

from pfl_client.daemon.status import Watch
from pfl_client.trainer_process.api import Done
from pfl_common.spec.run import Kind, Task
from tests.client.support.scripted_site import SCORES, pin


def test_numbers_of_one_run_are_not_those_of_the_next() -> None:
    """Who enters the same run again keeps them."""
    watch, done = Watch("hospital-a"), Done(dict(SCORES), {"loss": 1.0}, device="cpu")
    watch.enter(pin())
    watch.learn(Task(Kind.TRAIN, 1, 3), done)
    watch.enter(pin())
    assert ({"pre/test/combined": 0.75}, {"loss": 1.0}) == (watch.run.accuracy, watch.run.learning)
    watch.enter(replace(pin("run-2"), rounds=9))
    assert ("run-2", 9, {}, {}, {}) == (
        watch.run.id,
        watch.run.rounds,
        watch.run.accuracy,
        watch.run.loss,
        watch.run.learning,
    )
    assert ("cpu", 1) == (watch.trainer.device, watch.trainer.trained)


def test_how_far_a_training_is() -> None:
    """Samples of this one, and of the last one that was done."""
    watch, task = Watch("hospital-a"), Task(Kind.TRAIN, 1, 3)
    for samples in (10, 7):
        watch.begin(task)
        watch.give(task)
        watch.move(samples)
        watch.move(1)
        watch.learn(task, Done())
    assert (8, 8, 2, 2) == (
        watch.trainer.samples,
        watch.trainer.usual_samples,
        watch.trainer.trained,
        watch.tasks["train"],
    )
