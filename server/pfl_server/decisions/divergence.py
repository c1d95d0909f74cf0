"""Decides from the outcomes of attempts whether training diverges; no clock, socket or tensor.

An attempt diverges when the updates of most of the sites it asked are not finite or too large, and also when it is
abandoned only because of such updates: with two sites one of them is enough to keep the run from ever going on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self, cast

from pfl_common.spec.rules import Quorum
from pfl_common.spec.run import ClientId, Model
from pfl_server.decisions.sampling import Draw

LIMIT = 3
"""So many diverging attempts end a run, with no round between that closed well from the state of the round before: one
may be chance, and each costs every site its training.
"""
OUTLYING = "refused:change"
"""Why an update is lost that went too far, whether it was told so when it came or once all had come."""
DIVERGED = frozenset({"diverged", "refused:not_finite", "refused:norm", OUTLYING})
"""Reasons for a lost update that only a training that runs away has: what a site says itself, and what is refused."""
MOST_NAMED = 5
PICTURES = frozenset({"bytes", "wide", "unit", "byte_floats"})
"""How values are stored that become 0..1 at every site."""
SCALED = "pictures are scaled to 0..1"
LOOKED_UP = "words are looked up, which has no scale"


@dataclass(frozen=True)
class Outcome:
    """The part of an attempt's outcome that matters for divergence."""

    expected: int
    """Sites that were asked and not drawn to drop out."""
    needed: int
    """Updates that would have closed it."""
    counted: int
    diverged: tuple[ClientId, ...]
    committed: bool
    fell_back: bool = False
    """Its round began from an older state than that of the round before."""

    @classmethod
    def of(  # all that is known of an ended attempt
        cls, draw: Draw, quorum: Quorum, counted: int, losses: Mapping[ClientId, str], *, committed: bool
    ) -> Self:
        """The outcome from a round's end."""
        # A site drawn to drop out is not among the expected: one that diverged beside it is no half of two.
        lost = {site: reason for site, reason in losses.items() if site not in draw.drops}
        diverged = tuple(sorted(site for site, reason in lost.items() if reason in DIVERGED))
        expected = len(draw.cohort) - len(draw.drops)
        return cls(expected, draw.quorum(quorum), counted, diverged, committed)

    @classmethod
    def read(cls, row: Mapping[str, object], quorum: Quorum) -> Self | None:
        """The same from the journal; None for an attempt that is not over."""
        status = row["status"]
        if status not in ("committed", "abandoned"):
            return None
        cohort, drops = cast(list[ClientId], row["cohort"]), cast(list[ClientId], row["drops"])
        counted, losses = cast(list[ClientId], row["counted"]), cast(dict[ClientId, str], row["losses"])
        committed = status == "committed"
        # The journal keeps no counted sites of what was abandoned: one that was expected and not lost had answered.
        answered = len(counted) if committed else len(set(cohort) - set(drops) - losses.keys())
        return cls.of(Draw(tuple(cohort), frozenset(drops)), quorum, answered, losses, committed=committed)

    @property
    def most_diverge(self) -> bool:
        """Whether most of the updates that were expected run away: no few sites can bring that about by themselves."""
        return 2 * len(self.diverged) > self.expected

    @property
    def diverges(self) -> bool:
        """Whether it counts as one."""
        many = len(self.diverged)
        blocked = not self.committed and self.counted < self.needed <= self.counted + many
        return self.most_diverge or blocked


class Divergence:
    """Counts diverging attempts since a round last closed well, across rounds and restarts of the coordinator."""

    def __init__(self, before: Iterable[Outcome] = ()) -> None:
        self.streak = 0
        self._attempts = 0
        """From the first of them on, those between included."""
        for outcome in before:
            self.take(outcome)

    def take(self, outcome: Outcome) -> bool:
        """One more attempt has ended; whether the run has to end. A round that closes well begins the count anew, but
        not one from an older state: where training runs away each round would fall back, and the run get nowhere. An
        attempt that was lost for other reasons says nothing of training.
        """
        if outcome.diverges:
            self.streak += 1
        elif outcome.committed and not outcome.fell_back:
            self.streak = self._attempts = 0
        self._attempts += bool(self.streak)
        return outcome.diverges and self.streak >= LIMIT

    @property
    def often(self) -> str:
        """How many there were, in words: others may lie between, of rounds that fell back or were lost otherwise."""
        apart = self._attempts > self.streak
        return f"{self.streak} of {self._attempts} attempts" if apart else f"{self.streak} attempts in a row"


def tell_attempt(outcome: Outcome, place: str, streak: int) -> str:
    """The operator's first notice of a diverging attempt."""
    of = f"{len(outcome.diverged)} of {outcome.expected} updates"
    return (
        f"training diverges: in {place} {of} were not finite or too large, "
        f"from {name_sites(outcome.diverged)} ({streak} of {LIMIT} such attempts; with {LIMIT} the run ends)"
    )


@dataclass(frozen=True)
class Rate:
    """The run's learning rate and the method's default; None if the method has no such setting."""

    now: object
    usual: object

    @property
    def smaller(self) -> str:
        """One to try next."""
        numbers = [rate for rate in (self.usual, self.now) if isinstance(rate, int | float)]
        if len(numbers) < 2:
            return "..."
        usual, now = numbers
        return f"{usual if usual < now else now / 10:g}"


def tell_end(outcome: Outcome, place: str, *, often: str, lr: Rate, scaling: str) -> str:
    """Why the run has failed, and what to do; for the operator and for every site."""
    rate = "" if lr.now is None else f", lr is {lr.now}"
    # Pictures are on one scale already, words have none: advice on it would lead astray.
    otherwise = "" if scaling in (SCALED, LOOKED_UP) else " or with inputs on one scale"
    return (
        f"training diverged: {often}, the last of them {place}, in which updates of "
        f"{name_sites(outcome.diverged)} were not finite or too large{rate}, {scaling}; expected: finite numbers "
        f"within --largest-norm; what to do: begin another run with a smaller lr (--new-run --set lr={lr.smaller})"
        f"{otherwise}"
    )


def tell_scaling(model: Model, ranges: Mapping[ClientId, tuple[float, float]]) -> str:
    """Whether inputs are brought to one scale, and from where to where those of the sites go. The range of raw values
    says nothing of pictures, which every site scales to 0..1.
    """
    if len(model.shape) == 3 and model.values in PICTURES:
        return SCALED
    if model.kind == "tokens":
        return LOOKED_UP
    done = "inputs are standardised" if model.mean else "inputs are not standardised"
    known = {site: ends for site, ends in sorted(ranges.items()) if ends != (0.0, 0.0)}
    widest = sorted(known, key=lambda site: known[site][0] - known[site][1])[:MOST_NAMED]
    told = ", ".join(f"{site}: {known[site][0]:g} to {known[site][1]:g}" for site in widest)
    return f"{done} (the sites' values, widest first: {told})" if told else done


def name_sites(sites: tuple[ClientId, ...]) -> str:
    """Some sites by name, and how many more there are."""
    more = len(sites) - MOST_NAMED
    return ", ".join(sites[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
