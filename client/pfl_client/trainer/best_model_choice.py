"""Writes the model of a round that did better on the site's validation part than every round before it.

A candidate is the very model whose prediction is measured, complete: before training the shared state as downloaded
with the site's personal state, calibrated and personalised, which is the model after the round before; after training
the trained model, of this round. It is written while it is there, so that no second one is held in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from safetensors.torch import load_file

from pfl_client.trainer.model_files import write_state
from pfl_client.trainer_process.api import BestSoFar, Measured
from pfl_common.learning.method import LocalData, Participant
from pfl_common.randomness import generators
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State, load_into


class BestModel:
    """The best model of one site, during one task."""

    def __init__(self, describe: Callable[[Measured], dict[str, str]], so_far: BestSoFar) -> None:
        """`describe` makes a model's metadata."""
        self._describe, self._so_far = describe, so_far
        self.written: Measured | None = None

    def offer(self, participant: Participant, scores: Scores, point: str, after: int) -> None:
        """A model was measured at this point: the one after so many rounds. The first model is none of a round."""
        found = _read(scores, point, after)
        if found is not None and after > 0 and found.beats(self._so_far.measured):
            self._write(State.view(participant), found)

    def conclude(self, participant: Participant, data: LocalData, task: Task, scores: Scores) -> None:
        """At the end the participant holds the finished model of the last round, whose file is written by now: it is
        the best, or gives its place to the best before it, which is finished likewise.
        """
        last, best = _read(scores, "pre", task.round), self._so_far
        if last is None:
            return
        if best.measured is None or best.file is None or last.beats(best.measured):
            self._write(State.view(participant), last)
            return
        load_into(participant, load_file(best.file))
        with generators.scope(data.seed, data.site, best.measured.round, "finish the best"):
            participant.finish(data, task)
        self._write(State.view(participant), best.measured)

    def _write(self, state: State, measured: Measured) -> None:
        write_state(state, self._so_far.write_as, self._describe(measured))
        self.written = measured


def _read(scores: Scores, point: str, after: int) -> Measured | None:
    """What was measured on the validation part; None where a site has none."""
    values = scores.get(f"{point}/validation/combined")
    return None if values is None else Measured(after, values[2], values[4], int(values[1]))
