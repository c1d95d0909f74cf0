"""Settings are chosen by validation accuracy; a choice at the end of what was tried is told."""

from __future__ import annotations

from typing import Any

import pytest

from pfl_deploy.comparison.choosing import Edge, choose, find_edges
from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.plan import Comparison, Contestant, Trial

GRID = Contestant("fedavg", "fedavg", try_={"lr": [0.1, 0.2, 0.3]})


class Told:
    """Runs that end by a rule."""

    def __init__(self, outcomes: dict[float, Outcome]) -> None:
        self.outcomes = outcomes

    def run(self, trials: list[Trial], *, jobs: int) -> list[Outcome]:
        return [self.outcomes[trial.settings["lr"]] for trial in trials]


def validated(*sites: float) -> Outcome:
    """A validation accuracy for each site."""
    return Outcome({"validation": {str(number): value for number, value in enumerate(sites)}})


def compare(*contestants: Contestant) -> Comparison:
    """A comparison of these."""
    return Comparison(2, 1, (0,), {}, {}, contestants, contestants[0].name, 0.2)


def test_the_mean_over_sites_decides() -> None:
    """0.5 and 0.7 are more than 0.9 and 0.1."""
    runs = Told({0.1: validated(0.9, 0.1), 0.2: validated(0.5, 0.7), 0.3: validated(0.1, 0.1)})
    choice = choose(compare(GRID), runs, jobs=1)["fedavg"]
    assert ({"lr": 0.2}, (), ()) == (choice.settings, choice.edges, choice.failed)


def test_of_equals_the_first() -> None:
    """As the file names them."""
    runs = Told({lr: validated(0.5) for lr in (0.1, 0.2, 0.3)})
    assert {"lr": 0.1} == choose(compare(GRID), runs, jobs=1)["fedavg"].settings


def test_what_failed_is_not_chosen() -> None:
    """It is named; where all failed there is no choice."""
    bad = Outcome(failed="diverged")
    some = choose(compare(GRID), Told({0.1: bad, 0.2: validated(0.2), 0.3: bad}), jobs=1)["fedavg"]
    none = choose(compare(GRID), Told({0.1: bad, 0.2: bad, 0.3: bad}), jobs=1)["fedavg"]
    assert ({"lr": 0.2}, 2) == (some.settings, len(some.failed))
    assert (None, 3, ()) == (none.settings, len(none.failed), none.edges)


def test_one_combination_needs_no_run() -> None:
    """One value is no choice."""
    only = Contestant("fedavg", "fedavg", set={"batch": 8}, try_={"lr": [0.1]})
    choice = choose(compare(only), Told({}), jobs=1)["fedavg"]
    assert ({"batch": 8, "lr": 0.1}, ()) == (choice.settings, choice.tried)


@pytest.mark.parametrize(
    ("tried", "chosen", "edges"),
    [
        ({"lr": [0.1, 0.2, 0.3]}, {"lr": 0.2}, []),
        ({"lr": [0.3, 0.1]}, {"lr": 0.3}, [Edge("lr", 0.3, "largest")]),
        ({"lr": [0.3, 0.1]}, {"lr": 0.1}, [Edge("lr", 0.1, "smallest")]),
        ({"lr": [0.1]}, {"lr": 0.1}, []),
        ({"momentum": [0.0, 0.9]}, {"momentum": 0.0}, []),
        ({"momentum": [0.0, 0.9]}, {"momentum": 0.9}, [Edge("momentum", 0.9, "largest")]),
        ({"epochs": [1, 5]}, {"epochs": 1}, []),
        ({"epochs": [1, 5]}, {"epochs": 5}, [Edge("epochs", 5, "largest")]),
    ],
)
def test_ends_beyond_which_a_better_value_may_lie(tried: Any, chosen: Any, edges: list[Edge]) -> None:
    """Not where the setting itself ends: there is no momentum below 0 and no less than one epoch."""
    assert edges == find_edges(Contestant("fedavg", "fedavg", try_=tried), chosen)


def test_the_advice_names_value_and_end() -> None:
    """So that the file can be widened without looking up what was chosen."""
    for fact in ("lr 0.3", "largest", "widen"):
        assert fact in Edge("lr", 0.3, "largest").say()
