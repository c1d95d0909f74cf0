"""What is measured: which peers, with how many sites, how large a model, how many rounds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.peers.noop_model import count_bytes, shapes_of

PEERS = ("flower", "nvflare")
LOOPBACK = "127.0.0.1"
CASES = ("2xresnet18", "10xresnet18", "10xsmall")
FEWEST_ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """So many sites with a model of such a size."""

    sites: int
    size: str

    @classmethod
    def read(cls, word: str) -> Case:
        """Understand a word like 10xresnet18."""
        parts = re.fullmatch(r"([1-9][0-9]*)x([a-z0-9]+)", word)
        if parts is None:
            raise ValueError(f"case {word!r} is not of the form SITESxSIZE, such as 10xresnet18")
        shapes_of(parts[2])
        return cls(int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.sites}x{self.size}"

    @property
    def model_bytes(self) -> int:
        """What the model weighs as bare float32."""
        return count_bytes(self.size)


@dataclass(frozen=True)
class Order:
    """One measurement, and where it may work: everything below `folder` is its own."""

    peer: str
    case: Case
    rounds: int
    environment: Path
    folder: Path
    host: str = LOOPBACK
    """The coordinator's address."""
