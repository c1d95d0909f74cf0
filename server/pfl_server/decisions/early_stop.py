"""Decides from the mean validation losses of a run's rounds whether it ends early; no clock, socket or tensor.

Only measured rounds count. A loss is better if it is lower than the best before it by at least `LEAST_GAIN` of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEAST_GAIN = 0.001
"""A tenth of a percent: less is noise of a few samples, and would let a run that stands still go on for ever."""


@dataclass(frozen=True)
class Stand:
    """How a run stands: the best mean validation loss, after which round that was, and rounds measured since."""

    best: float
    after: int
    since: int

    def tell(self, patience: int, *, loss: bool = True) -> str:
        """In words; without the `loss` itself where that is over too few sites."""
        best = f"the best, {self.best:.4f}," if loss else "the best"
        rounds = (
            f"{self.since} of {patience} measured rounds" if self.since < patience else _count(self.since)
        )
        return (
            f"{rounds} without a mean validation loss that is {100 * LEAST_GAIN:g} % better; "
            f"{best} was after round {self.after}"
        )


def judge(losses: Mapping[int, float], patience: int) -> Stand | None:
    """How the run stands after all measured rounds; None before there is one. Where patience ran out it stays so,
    whatever was measured afterwards: a run that has begun to end does not go on.
    """
    stand = None
    for after, loss in sorted(losses.items()):
        if stand is None or loss < stand.best - LEAST_GAIN * abs(stand.best):
            stand = Stand(loss, after, 0)
        else:
            stand = Stand(stand.best, stand.after, stand.since + 1)
        if stand.since >= patience:
            break
    return stand


def _count(rounds: int) -> str:
    return f"{rounds} measured round{'' if rounds == 1 else 's'}"
