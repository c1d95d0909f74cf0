"""How far each method is from its oracle: `python -m tests.common.methods.conformance.differences [METHOD …]`.

A tensor's difference is the largest one of its numbers, relative to the largest number the oracle has in it.
Where a specification leaves the scores of a prediction free, its tensors alone are looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import numpy as np
from torch import Tensor

from .cases import FOUND, FURTHER, Case, play
from .federation import History
from .network import Array
from .replay import Expected, replay
from .schedule import SITES


def difference(wanted: Array, seen: Tensor) -> float:
    """The largest difference of two arrays, relative to the largest finite number that is wanted."""
    expected, actual = np.asarray(wanted, float), np.asarray(seen.detach(), float)
    counted = expected[np.isfinite(expected)]
    most = float(np.abs(actual[np.isfinite(expected)] - counted).max(initial=0.0))
    scale = float(np.abs(counted).max(initial=0.0))
    return most / scale if scale else most


def largest(history: History, expected: Expected) -> float:
    """The largest difference of all tensors and scores of one run."""
    return max(difference(wanted, seen) for wanted, seen in pairs(history, expected))


def pairs(history: History, expected: Expected) -> Iterator[tuple[Array, Tensor]]:
    """All that is compared: shared states, vaults, models measured and served, and scores."""
    for number, state in history.states.items():
        yield from _common(expected.states[number], state)
        for site in SITES:
            yield from _common(expected.vaults[number][site], history.vaults[number][site])
    for number, measured in history.measured.items():
        for site in SITES:
            model, scores = expected.measured[number][site]
            yield from _common(model, measured[site].model)
            if not expected.oracle.by_rank:
                yield scores, measured[site].scores
    for site in SITES:
        yield from _common(expected.serving[site], history.serving[site])
    yield from _after_training(history, expected)


def _after_training(history: History, expected: Expected) -> Iterator[tuple[Array, Tensor]]:
    for (turn, trained), scores in zip(history.trained, expected.trained, strict=True):
        for site in turn.cohort:
            seen = trained[site].scores
            if seen is not None and not expected.oracle.by_rank:
                yield scores[site], seen


def _common(wanted: Mapping[str, Array], seen: Mapping[str, Tensor]) -> Iterator[tuple[Array, Tensor]]:
    for name in sorted(wanted.keys() & seen.keys()):
        yield wanted[name], seen[name]


def measure(case: Case) -> float:
    """One case, played by both."""
    history = play(case)
    return largest(history, replay(case, history.init))


def main(chosen: list[str]) -> None:
    """A line for each method: its largest difference, over how many cases, and in which it is."""
    for name in dict.fromkeys(case.name for case in FOUND):
        if not chosen or name in chosen:
            found = {str(case): measure(case) for case in FOUND + FURTHER if case.name == name}
            worst = max(found, key=lambda label: found[label])
            print(f"{name}\t{found[worst]:.1e}\t{len(found)}\t{worst}")


if __name__ == "__main__":
    main(sys.argv[1:])
