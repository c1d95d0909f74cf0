"""The schedule once more, played by an oracle: the same sites, the same mishaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pfl_common.randomness import generators
from pfl_common.tensors.state import State

from .cases import Case, oracle_of
from .federation import BASE
from .network import Array, Arrays
from .oracles import Oracle, SiteArrays
from .schedule import LATECOMER, ROUNDS, SCHEDULE, SEED, SITES, Play, build_data

RTOL, ATOL = 1e-9, 1e-11


@dataclass
class Expected:
    """What an oracle says must be there."""

    oracle: Oracle
    states: dict[int, Arrays] = field(default_factory=dict)
    vaults: dict[int, dict[str, Arrays]] = field(default_factory=dict)
    measured: dict[int, dict[str, tuple[Arrays, Array]]] = field(default_factory=dict)
    trained: list[dict[str, Array]] = field(default_factory=list)
    serving: dict[str, Arrays] = field(default_factory=dict)


class Drawn:
    """What a site draws in this world, as numbers: the words of each draw are the product's own."""

    def order(self, site: str, t: int, epoch: int, n: int) -> Array:
        """The shuffle of one epoch."""
        return _permutation(n, site, t, "shuffle", epoch)

    def noise(self, site: str, t: int, purpose: str, shapes: list[tuple[int, ...]]) -> list[Array]:
        """One generator for a purpose of a round, asked for one array after the other."""
        source = generators.generator(SEED, site, t, purpose)
        return [torch.rand(shape, generator=source, dtype=torch.float64).numpy() for shape in shapes]

    def split(self, site: str, purpose: str, n: int) -> Array:
        """An order that no round changes."""
        return _permutation(n, site, purpose)


def _permutation(n: int, *words: int | str) -> Array:
    places: Array = torch.randperm(n, generator=generators.generator(SEED, *words)).numpy()
    return places


def replay(case: Case, init: State) -> Expected:
    """Play the schedule; an attempt that is given up leaves no trace."""
    data = {site: site_arrays(site) for site in SITES}
    settings = {**BASE, "rounds": ROUNDS, **case.settings}
    oracle = oracle_of(case.name)(arrays(init), data, settings, Drawn(), frozenset({LATECOMER}))
    expected = Expected(oracle)
    for turn in SCHEDULE:
        _measure(expected, turn.number)
        _play(expected, turn)
    _measure(expected, ROUNDS + 1)
    expected.serving = {site: oracle.serve(site, ROUNDS) for site in SITES}
    return expected


def _measure(expected: Expected, number: int) -> None:
    # After the last round the question is asked in the words of the last round: there is no other phase.
    asked = min(number, ROUNDS)
    expected.measured[number] = {site: expected.oracle.predict(site, asked) for site in SITES}


def _play(expected: Expected, turn: Play) -> None:
    oracle = expected.oracle
    saved = oracle.save()
    results = {site: oracle.train(site, turn.number) for site in turn.cohort}
    expected.trained.append({site: scores for site, (_, scores) in results.items()})
    if turn.abandoned:
        oracle.roll_back(saved)
        return
    oracle.close(turn.number, {site: results[site][0] for site in turn.counted})
    expected.states[turn.number] = oracle.state()
    expected.vaults[turn.number] = {site: oracle.kept(site) for site in SITES}


def arrays(state: Mapping[str, Tensor]) -> Arrays:
    """Tensors as arrays."""
    return {name: value.detach().numpy().copy() for name, value in state.items()}


def site_arrays(site: str) -> SiteArrays:
    """A site's data as the oracle takes them."""
    data = build_data(site, name=site, dtype=torch.float64)
    train, validation = data.train, data.validation
    numbers = (train.x, train.y, validation.x, validation.y, data.test.x)
    return SiteArrays(*(value.numpy() for value in numbers))


def differing(expected: Mapping[str, Array], actual: Mapping[str, Tensor]) -> dict[str, object]:
    """Names that are too many or too few, and by how much the others differ; empty if they agree."""
    found: dict[str, object] = {name: "missing" for name in expected.keys() - actual.keys()}
    found |= {name: "too many" for name in actual.keys() - expected.keys()}
    for name in sorted(expected.keys() & actual.keys()):
        wanted, seen = np.asarray(expected[name], float), np.asarray(actual[name].detach(), float)
        if wanted.shape != seen.shape:
            found[name] = f"{seen.shape} for {wanted.shape}"
        elif not np.allclose(seen, wanted, rtol=RTOL, atol=ATOL):
            found[name] = f"off by {np.abs(seen - wanted).max():.2e}"
    return found


def same_scores(oracle: Oracle, expected: Array, actual: Tensor) -> bool:
    """Whether two predictions agree: in their scores, or where these are free in the order of classes."""
    seen = actual.numpy()
    if not oracle.by_rank:
        return bool(np.allclose(seen, expected, rtol=RTOL, atol=ATOL))
    return bool(
        (np.isneginf(seen) == np.isneginf(expected)).all() and (seen.argsort(1) == expected.argsort(1)).all()
    )
