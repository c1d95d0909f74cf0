"""The record of one attempt at a round: when, how long, how many bytes, which sites were lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pfl_server.telemetry.counter_reading import Reading


@dataclass(frozen=True)
class Course:
    """One attempt's record: when it opened and ended (Unix times), and what it cost.

    Seconds by phase, summed over sites for what sites do; bytes by direction and kind, as "down/train"; what the
    coordinator's half of the method told, by name; losses by reason and stage, as "lease/working". Nothing that is
    computed depends on any of it.
    """

    round: int
    attempt: int
    opened: float
    ended: float
    seconds: Mapping[str, float]
    bytes: Mapping[str, int]
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
    reading: Reading | None = field(default=None, compare=False, repr=False)
    """What the meter showed at its end; only that of the last attempt is kept."""
