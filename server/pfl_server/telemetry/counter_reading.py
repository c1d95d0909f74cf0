"""The counters at one moment, kept in the journal so that a restarted coordinator continues from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Count = TypeVar("Count", int, tuple[int, float])


@dataclass(frozen=True)
class Lap:
    """The difference of two readings: seconds by phase, bytes as "down/train"."""

    seconds: dict[str, float]
    bytes: dict[str, int]


@dataclass(frozen=True)
class Reading:
    """All counters: bytes as "down/train"; count and seconds by phase; refused messages by code."""

    bytes: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)

    def since(self, earlier: Reading) -> Lap:
        """The difference from an earlier reading."""
        spent = {
            phase: total - earlier.seconds.get(phase, (0, 0.0))[1]
            for phase, (_, total) in self.seconds.items()
        }
        moved = {name: count - earlier.bytes.get(name, 0) for name, count in self.bytes.items()}
        return Lap(
            {phase: seconds for phase, seconds in spent.items() if seconds},
            {name: count for name, count in moved.items() if count},
        )

    def or_more(self, other: Reading) -> Reading:
        """The newer of two, number by number: what is counted only grows."""
        return Reading(
            _most(self.bytes, other.bytes),
            _most(self.seconds, other.seconds),
            _most(self.refusals, other.refusals),
        )

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps([dict(self.bytes), dict(self.seconds), dict(self.refusals)], sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Reading:
        """As it was kept."""
        moved, spent, refusals = json.loads(text)
        return cls(moved, {phase: (count, total) for phase, (count, total) in spent.items()}, refusals)


def _most(one: Mapping[str, Count], other: Mapping[str, Count]) -> dict[str, Count]:
    return {**other, **{name: max(count, other.get(name, count)) for name, count in one.items()}}
