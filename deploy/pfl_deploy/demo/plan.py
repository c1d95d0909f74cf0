"""The demo's plan: the sites' data, the number of rounds, and three methods with their settings."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pfl_common.errors import DataError, StateError
from pfl_common.identity import keep_name

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "digits"
ROUNDS = 40
SEED = 0
BACKBONE = "resnet8"
PATIENT = "quorum = 1\nlease_seconds = 120\n"
"""Every update counts: the demo ends alike on a slow machine and on a fast one. All methods read it from one file:
runs of unlike conditions cannot be compared, and `pfl simulate` has no options for these.
"""


@dataclass(frozen=True)
class Contestant:
    """A method of the comparison: its name, its title in the report, its settings."""

    method: str
    title: str
    sense: str
    settings: Mapping[str, float | str]

    def words(self, plan: Plan) -> tuple[str, ...]:
        """The words of a command line that all its runs have in common."""
        pairs = (word for name, value in self.settings.items() for word in ("--set", f"{name}={value}"))
        common = ("--rounds", str(plan.rounds), "--seed", str(SEED), "--backbone", BACKBONE)
        return ("--method", self.method, *common, "--config", str(plan.conditions), *pairs)


# How these settings were chosen stands in deploy/samples/README.md: on validation pictures alone.
DUALFED = Contestant(
    "dualfed",
    "DualFed, simultaneous",
    "together, each with its own model",
    {"lr": 0.1, "lambda": 1.0, "train_mode": "simultaneous"},
)
LOCAL = Contestant("local", "Alone", "each site on its own data only", {"lr": 0.3})
# Each site keeps its own batch-norm statistics, as under DualFed: averaged over pictures so different they fit none.
FEDAVG = Contestant("fedavg", "FedAvg", "together, one shared model", {"lr": 0.3, "bn_policy": "local_stats"})
CHOSEN_ALIKE = ("lr",)
"""Settings that were chosen for each method from the same values, on validation pictures."""
YARDSTICKS = (LOCAL, FEDAVG)
CONTESTANTS = (LOCAL, FEDAVG, DUALFED)


@dataclass(frozen=True)
class Plan:
    """One demo: the sites' folders, the rounds, and the folder for all results."""

    data: Path
    out: Path
    rounds: int = ROUNDS
    keep: bool = False

    @property
    def chosen_alike(self) -> tuple[str, ...]:
        """Settings that may differ between the methods all the same; on other data nothing was chosen."""
        return CHOSEN_ALIKE if self.data == SAMPLE else ()

    @property
    def sites(self) -> tuple[Path, ...]:
        """The data folders, by name."""
        inside = self.data.iterdir() if self.data.is_dir() else ()
        found = tuple(sorted(keep_name(path) for path in inside if path.is_dir()))
        if len(found) < 2:
            raise DataError(
                f"{self.data} holds {len(found)} data folders",
                expected="two or more, one for each site, as `pfl split` makes them",
                advice="name the folder above the sites' folders with --data",
            )
        return found

    @property
    def state(self) -> Path:
        """The programs' files (keys, vaults, models); removed at the end unless they are asked for."""
        return self.out / "state"

    @property
    def conditions(self) -> Path:
        """What is equal for all methods and no option, as a TOML file."""
        return self.state / "conditions.toml"

    @property
    def logs(self) -> Path:
        """The programs' logs."""
        return self.out / "logs"

    @property
    def report(self) -> Path:
        """The page."""
        return self.out / "report.html"

    @property
    def results(self) -> Path:
        """The page's numbers."""
        return self.out / "results.json"


def choose_folder(asked: Path | None) -> Path:
    """An empty folder to write to: the one asked for, or a new one among the temporary files."""
    if asked is None:
        return Path(tempfile.mkdtemp(prefix="pfl-demo-"))
    try:
        asked.mkdir(parents=True, exist_ok=True)
        full = any(asked.iterdir())
    except OSError as error:
        raise StateError(
            f"--out {asked} cannot be used: {error.strerror}", expected="a folder this user may write to"
        ) from None
    if full:
        raise StateError(
            f"--out {asked} is not empty", expected="a new or empty folder", advice="choose another one"
        )
    return asked.resolve()
