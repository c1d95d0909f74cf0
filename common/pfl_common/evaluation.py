"""Evaluation as vectors that can be added: who sees only the sum still learns mean, spread and worst tenth.

A vector is (correct, samples, accuracy, accuracy squared, loss, one-hot of the accuracy in 101 bins).
A number that a method tells of its training at a site is (value, value squared, 1); its name begins with told/.
Torch-free.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pfl_common.spec.messages import Scores
from pfl_common.spec.run import RunSpec

BINS = 101
WIDTH = 5 + BINS
MOST = 48
"""Evaluations in one report: two points, three splits, and more views than any method has heads."""

TOLD = "told/"
"""Begins the name of what a method tells of its training at a site."""
MOST_TOLD = 256
"""Numbers told in one report: FedCAC tells one for each tensor of its network, of which ResNet-18 has 62."""
LARGEST_TOLD = 1e30
"""What is larger says nothing, and its square would spoil a sum."""
HEAVIEST = 100
"""One site's samples count in a pooled figure for at most so many times those of the site in the middle."""
LARGEST_LOSS = 100.0
"""A loss counts for no more than this, or ten times that of the site in the middle: the mean is not one site's."""
REPORTS = "reports"
"""What a specification's versions say of the reports that its coordinator takes: one of an older release says nothing,
and refuses names that begin with told/.
"""
FEWEST_REPORTERS = 5
"""Sites over which a mean is told unless somebody says otherwise: of fewer it says much about each."""

_NAME = re.compile(r"(pre|post)/(test|validation|shifted|train)/[a-z0-9_]{1,32}")
_TOLD_NAME = re.compile(r"told/[a-z0-9_]{1,32}(/[A-Za-z0-9_.]{1,96})?")


def vector(correct: int, samples: int, loss: float) -> list[float]:
    """One site's evaluation of one set of samples."""
    accuracy = correct / samples
    bins = [0.0] * BINS
    bins[math.floor(accuracy * (BINS - 1) + 0.5)] = 1.0
    return [float(correct), float(samples), accuracy, accuracy * accuracy, loss, *bins]


def tell(metrics: Mapping[str, float]) -> Scores:
    """One site's training numbers in a form that can be summed over sites; numbers that no report may hold are left
    out.
    """
    vectors = {f"{TOLD}{name}": [value, value * value, 1.0] for name, value in sorted(metrics.items())}
    fitting = [name for name, values in vectors.items() if _TOLD_NAME.fullmatch(name) and _is_told(values)]
    return {name: vectors[name] for name in fitting[:MOST_TOLD]}


def takes_told(spec: RunSpec) -> bool:
    """Whether the run's coordinator takes what `tell` makes."""
    return spec.versions.get(REPORTS) == "told"


def told(report: Scores) -> Scores:
    """Of a report or a sum what training said, by the names that the method uses."""
    return {name.removeprefix(TOLD): values for name, values in report.items() if name.startswith(TOLD)}


def evaluations(report: Scores) -> Scores:
    """Of a report or a sum what was measured of the models."""
    return {name: values for name, values in report.items() if not name.startswith(TOLD)}


def shorten(report: Scores) -> dict[str, dict[str, float]]:
    """One site's evaluations for its own curve, which needs no histogram of itself."""
    return {
        name: {"accuracy": values[2], "loss": values[4], "samples": values[1]}
        for name, values in report.items()
    }


def add(reports: Iterable[Scores]) -> Scores:
    """The sum over sites, in the order given: with site order the bits never depend on arrival."""
    total: Scores = {}
    for report in reports:
        for name, values in report.items():
            held = total.setdefault(name, [0.0] * len(values))
            total[name] = [a + b for a, b in zip(held, values, strict=True)]
    return total


def agreed(reports: Sequence[Scores]) -> list[Scores]:
    """The reports, without views and training numbers that most of them lack. All sites have the heads of one method,
    so one that a single site reports is made up, and would stay for ever wherever each is kept as a series.

    Most of those that have any: a site that only measures tells nothing, nor does one whose owner does not want it.
    """
    views = _held_by_most([{_view(name) for name in evaluations(report)} for report in reports]) | {
        "combined"
    }
    numbers = _held_by_most([set(told(report)) for report in reports])
    return [
        {name: values for name, values in evaluations(report).items() if _view(name) in views}
        | {f"{TOLD}{name}": values for name, values in told(report).items() if name in numbers}
        for report in reports
    ]


def bounded(reports: Sequence[Scores]) -> list[Scores]:
    """The reports, in which no site weighs so much that a figure over all sites is its own: who claims more samples, or
    a larger loss, than the bounds beside the site in the middle is counted with those. Accuracies stay what they were.
    """
    names = {name for report in reports for name in evaluations(report)}
    limits = {name: _limits([report[name] for report in reports if name in report]) for name in names}
    return [
        {name: _bound(values, limits[name]) if name in limits else values for name, values in report.items()}
        for report in reports
    ]


def _limits(each: Sequence[list[float]]) -> tuple[float, float]:
    """The most samples and the largest loss that one site may bring."""
    # Of two in the middle the lower; by hand, since a waiting site has no other use for `statistics`.
    samples, loss = (sorted(values[place] for values in each)[(len(each) - 1) // 2] for place in (1, 4))
    return HEAVIEST * samples, max(LARGEST_LOSS, 10 * loss)


def _bound(values: list[float], limits: tuple[float, float]) -> list[float]:
    correct, samples, accuracy, squared, loss, *bins = values
    most, worst = limits
    if samples > most:
        correct, samples = accuracy * most, most
    return [correct, samples, accuracy, squared, min(max(loss, -worst), worst), *bins]


def _held_by_most(each: Sequence[set[str]]) -> set[str]:
    counts = Counter(name for names in each for name in names)
    least = sum(1 for names in each if names) / 2
    return {name for name, count in counts.items() if count > least}


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


def tell_too_few(reporters: int, fewest: int) -> str:
    """That a mean over so few sites is not told; nothing where it is."""
    sites = "1 site" if reporters == 1 else f"{reporters} sites"
    return "" if reporters >= fewest else f"{sites}: the mean over fewer than {fewest} is not shown"


def spread(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation over sites of a summed number that they told."""
    value, squared, sites = values
    mean = value / sites
    return mean, math.sqrt(max(0.0, squared / sites - mean * mean))


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


def check(report: Scores, *, most_samples: float = math.inf) -> None:
    """A peer's report says of few things what `vector` and `tell` can say: a made-up one must not spoil a run. It has
    measured no more than `most_samples`.
    """
    numbers = len(told(report))
    if len(report) - numbers > MOST or numbers > MOST_TOLD:
        raise ValueError(
            f"a report of {len(report) - numbers} evaluations and {numbers} told numbers; "
            f"expected at most {MOST} and {MOST_TOLD}"
        )
    for name, values in report.items():
        if name.startswith(TOLD):
            _check_told(name, values)
        else:
            _check_evaluation(name, values)
            if values[1] > most_samples:
                raise ValueError(
                    f"the evaluation {name!r} is over {values[1]:g} samples; expected at most {most_samples:g}"
                )


def _check_evaluation(name: str, values: list[float]) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"an evaluation is called {name[:80]!r}; expected point/split/view")
    if len(values) != WIDTH or not all(map(math.isfinite, values)):
        raise ValueError(f"the evaluation {name!r} is not {WIDTH} finite numbers")
    correct, samples = int(values[0]), int(values[1])
    if not 0 <= correct <= samples or not samples or values != vector(correct, samples, values[4]):
        raise ValueError(f"the evaluation {name!r} does not add up")


def _check_told(name: str, values: list[float]) -> None:
    if not _TOLD_NAME.fullmatch(name):
        raise ValueError(f"a told number is called {name[:80]!r}; expected told/family or told/family/part")
    if not _is_told(values):
        raise ValueError(
            f"the told number {name!r} is not (value, value squared, 1) with at most {LARGEST_TOLD:g}"
        )


def _is_told(values: list[float]) -> bool:
    # What is no number is smaller than nothing and larger than nothing: it fails here too.
    if len(values) != 3 or not abs(values[0]) <= LARGEST_TOLD:
        return False
    value, squared, one = values
    return one == 1.0 and math.isclose(squared, value * value, rel_tol=1e-9)
