"""Evaluation as vectors that can be added: who sees only the sum still learns mean, spread and worst tenth.

A vector is (correct, samples, accuracy, accuracy squared, loss, one-hot of the accuracy in 101 bins).
Torch-free.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pfl_common.messages import Scores

BINS = 101
WIDTH = 5 + BINS
MOST = 48
"""Evaluations in one report: two points, three splits, and more views than any method has heads."""

_NAME = re.compile(r"(pre|post)/(test|validation|shifted|train)/[a-z0-9_]{1,32}")


def vector(correct: int, samples: int, loss: float) -> list[float]:
    """One site's evaluation of one set of samples."""
    accuracy = correct / samples
    bins = [0.0] * BINS
    bins[math.floor(accuracy * (BINS - 1) + 0.5)] = 1.0
    return [float(correct), float(samples), accuracy, accuracy * accuracy, loss, *bins]


def add(reports: Iterable[Scores]) -> Scores:
    """The sum over sites, in the order given: with site order the bits never depend on arrival."""
    total: Scores = {}
    for report in reports:
        for name, values in report.items():
            held = total.setdefault(name, [0.0] * WIDTH)
            total[name] = [a + b for a, b in zip(held, values, strict=True)]
    return total


def agreed(reports: Sequence[Scores]) -> list[Scores]:
    """The reports without views that most of them do not have: all sites have the heads of one method, so what a
    single one has is made up, and would be remembered for ever by whoever keeps each view as a series.
    """
    views = Counter(view for report in reports for view in {_view(name) for name in report})
    least = sum(1 for report in reports if report) / 2
    known = {view for view, count in views.items() if count > least} | {"combined"}
    return [{name: values for name, values in report.items() if _view(name) in known} for report in reports]


def _view(name: str) -> str:
    return name.rpartition("/")[2]


def summary(values: list[float]) -> dict[str, float]:
    """A summed vector in words: accuracies (macro and micro), spread over sites, worst tenth, mean loss.

    The spread is told relative to the mean over sites, the headline here, and relative to the accuracy over all
    samples, the headline of the FedCP and GPFL papers (GPFL, Sec. 4.5).
    """
    correct, samples, accuracy, squared, loss, *bins = values
    sites = sum(bins)
    mean = accuracy / sites
    deviation = math.sqrt(max(0.0, squared / sites - mean * mean))
    return {
        "sites": sites,
        "acc_macro": mean,
        "acc_micro": correct / samples,
        "acc_std": deviation,
        "acc_variation": deviation / mean if mean else math.nan,
        "acc_variation_micro": deviation * samples / correct if correct else math.nan,
        "acc_worst_decile": _worst(bins, math.ceil(sites / 10)),
        "loss": loss / sites,
    }


def _worst(bins: list[float], count: int) -> float:
    """The mean accuracy of the `count` worst sites, to the width of a bin."""
    left, total = float(count), 0.0
    for place, held in enumerate(bins):
        taken = min(left, held)
        total, left = total + taken * place / (BINS - 1), left - taken
    return total / count


def is_finite(report: Scores) -> bool:
    """Whether a report holds numbers alone: one of a training that runs away does not."""
    return all(math.isfinite(value) for values in report.values() for value in values)


def check(report: Scores) -> None:
    """A peer's report says of few things what `vector` can say: a made-up one must not spoil or end a run."""
    if len(report) > MOST:
        raise ValueError(f"a report of {len(report)} evaluations; expected at most {MOST}")
    for name, values in report.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"an evaluation is called {name[:80]!r}; expected point/split/view")
        if len(values) != WIDTH or not all(math.isfinite(v) for v in values):
            raise ValueError(f"the evaluation {name!r} is not {WIDTH} finite numbers")
        correct, samples = int(values[0]), int(values[1])
        if not 0 <= correct <= samples or not samples or values != vector(correct, samples, values[4]):
            raise ValueError(f"the evaluation {name!r} does not add up")
