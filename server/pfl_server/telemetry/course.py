"""How one attempt at a round went: when, how long, how many bytes, and who was lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pfl_server.telemetry.counter_reading import Reading


@dataclass(frozen=True)
class Course:
    """How an attempt went: when it was opened and ended (Unix times), and what it took.

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
