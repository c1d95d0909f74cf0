"""One federation to measure: how many sites, how large a model, how many rounds, and what happens to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RESNET18 = 11_689_512
SMALL = 25_000
"""Numbers in a model of 100 KB."""


@dataclass(frozen=True)
class Workload:
    """Equal workloads are played once and looked at from several sides."""

    sites: int
    numbers: int = RESNET18
    rounds: int = 6
    """Rounds that count; one more is played at the beginning and left out."""
    layout: Literal["resnet18", "one"] = "resnet18"
    linger: float = 0.0
    """Seconds each site takes over its task."""
    participation: str = "1.0"
    lease: float = 0.0
    """0: the product's default."""
    durability: str = ""
    """Empty: the product's default."""
    kill: bool = False
    """After the rounds that count, one site is killed in the middle of its task."""
    watch_idle: bool = False
    """The first site waits alone for a while, and all sites' memory is looked at."""
    light: bool = False
    """Sites are real daemons on real lines, but many to a process and without trainers."""
    host: str = ""
    """Where the coordinator listens; empty: this machine alone."""
    line: float = 0.0
    """Bytes a second that each site's line carries each way, where that is little."""
    extra: tuple[str, ...] = ()
    """More words for `pfl-server`."""

    @property
    def model_bytes(self) -> int:
        """What the model weighs."""
        return 4 * self.numbers

    @property
    def cohort(self) -> int:
        """Sites in one round."""
        return max(1, round(self.sites * float(self.participation)))

    @property
    def patience(self) -> float:
        """Seconds after which something must be wrong, on a slow and busy machine."""
        moved = self.rounds * self.cohort * self.model_bytes
        slow = 6 * (self.rounds + 2) * self.model_bytes / self.line if self.line else 0.0
        return 180 + 6 * self.sites + 30 * self.lease + moved / 20e6 + slow

    def words(self) -> list[str]:
        """What `pfl-server` is told; with more rounds than are needed, so that the last one has a successor."""
        said = {
            "--method": "noop",
            "--sites": self.sites,
            "--rounds": self.rounds + 40,
            "--participation": self.participation,
            "--lease-seconds": self.lease,
            "--quorum": 0.5,  # where a site of two is killed, the round ends with its lease
            "--durability": self.durability,
            "--host": self.host,
        }
        settings = {"numbers": self.numbers, "layout": self.layout, "linger": self.linger}
        words = [str(word) for name, value in said.items() if value for word in (name, value)]
        if self.participation != "1.0":
            words += ["--evaluate-every", "999999"]
        words += self.extra
        return words + [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
