"""The result of one run: accuracy by part of the data and by site, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias  # plain values on their way to and from JSON

from pydantic import TypeAdapter

from pfl_deploy.report.averages import Average, average

Accuracies: TypeAlias = dict[str, dict[str, float]]
"""By part of the data, then by site."""
LONGEST_REASON = 90


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    accuracy: Accuracies = field(default_factory=dict)
    curve: dict[int, float] = field(default_factory=dict)
    """Mean accuracy over sites on test data, by the number of rounds trained before."""
    rounds: dict[int, dict[str, float]] = field(default_factory=dict)
    """The same, each site for itself, at the rounds that all sites measured."""
    samples: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many samples a part has, by site."""
    exchanged: dict[int, float] = field(default_factory=dict)
    """Bytes that a site took and gave until the end of a round, as papers count them."""
    failed: str = ""
    """Why the run did not come to its end, in words; empty if it did."""
    lasting: bool = True
    """Whether the same run would end so again: not if the machine had ended it."""

    def mean(self, part: str, how: Average = "macro") -> float:
        """Over sites; pooled, each counts by its test samples."""
        return average(self.accuracy[part], self.samples.get(part, {}), how)

    def curve_of(self, how: Average) -> dict[int, float]:
        """The average over sites on test data, by the number of rounds trained before."""
        if how == "macro":
            return self.curve
        samples = self.samples.get("test", {})
        return {number: average(found, samples, how) for number, found in self.rounds.items()}

    @property
    def reason(self) -> str:
        """Why it failed, short enough for a table."""
        first = self.failed.strip().partition("\n")[0]
        # "round 3: training diverged: ..." is a long story whose one word matters.
        first = "training diverged" if "diverge" in first else first
        return first if len(first) <= LONGEST_REASON else f"{first[: LONGEST_REASON - 1]}…"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Outcome:
        """Read back; what is no outcome is a ValueError."""
        return _OUTCOME.validate_python(plain)


_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
