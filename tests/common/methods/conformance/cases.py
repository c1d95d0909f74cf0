"""What is run: every method file found, and settings worth an oracle's time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import ModuleType

from pfl_common import methods
from pfl_common.spec.run import Json

from .baselines import BASELINE_FURTHER, BASELINE_ORACLES, BASELINE_SMALL
from .federation import Federation, Habits, History
from .oracle_fedcac import FedCac
from .oracles import DualFed, FedAvg, FedBn, FedPer, FedProto, Local, Oracle
from .several_heads import HEADS_FURTHER, HEADS_ORACLES, HEADS_SMALL

ORACLES: dict[str, type[Oracle]] = {
    "dualfed": DualFed,
    "fedavg": FedAvg,
    "fedbn": FedBn,
    "fedcac": FedCac,
    "fedper": FedPer,
    "fedproto": FedProto,
    "local": Local,
    **BASELINE_ORACLES,
    **HEADS_ORACLES,
}
"""Each method's second writing, by the name of its file."""

UNMOVED: dict[str, frozenset[str]] = {
    # Before a batch norm a bias does nothing; the specification has one there all the same.
    "dualfed": frozenset({"projector.fc2.bias"}),
    # What classes point to is drawn once and never trained.
    "fedetf": frozenset({"etf.vectors"}),
    # Only the parameters of the last mix are remembered.
    "fedfomo": frozenset(
        {f"old.encoder.scale.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    ),
    "spherefed": frozenset({"frame.rows"}),
}
"""Tensors that training need not move, each with its reason."""

CALLED: dict[str, str] = {
    "fedfomo": "a site's name chooses the samples it validates with",
    "fedpick": "a site's name chooses its noise",
    "perfedavg": "a site's name orders the samples of its small batches",
}
"""Methods whose sites, under other names, draw other numbers: what they end with is not the same."""

SENT_TOO: dict[str, str] = {"fedphp": "own."}
"""What a site keeps under this prefix after training is the very model it uploads, remembered for the next round."""


@dataclass(frozen=True, eq=False)
class Case:
    """A method with the settings of one run."""

    name: str
    settings: Mapping[str, Json] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.label}" if self.label else self.name

    def module(self) -> ModuleType:
        """The method's file."""
        return import_module(f"pfl_common.methods.{self.name}")


SMALL: dict[str, dict[str, Json]] = {
    # The contrastive term enlarges rounding errors with every step: small steps keep nine digits.
    "dualfed": {"proj_hidden": 7, "lr": 0.02},
    "fedcac": {"beta": 5},
    **BASELINE_SMALL,
    **HEADS_SMALL,
}
"""Settings that bring a method's turning points into seven rounds."""

FOUND = tuple(Case(name, SMALL.get(name, {})) for name in methods.names())
"""One case for each file: a new one needs no line here."""

FURTHER = (
    Case("dualfed", {"proj_hidden": 7, "lr": 0.02, "train_mode": "simultaneous"}, "simultaneous"),
    Case("fedcac", {"beta": 5, "merge_at": "server"}, "merged-by-the-coordinator"),
    Case("fedcac", {"beta": 7, "bn_stats": "local"}, "own-statistics"),
    Case("fedcac", {"beta": 5, "noncritical": "as_critical"}, "all-critical"),
    Case("fedcac", {"collab": "top1", "tau": 0.3}, "nearest-one"),
    Case("fedcac", {"collab": "none"}, "alone"),
    Case("fedproto", {"lambda": 10}, "strong"),
    *(Case(*words) for words in (*BASELINE_FURTHER, *HEADS_FURTHER)),
)
"""Settings that only the oracle looks at."""


WATCHED = Habits()


@cache
def play(case: Case, habits: Habits = WATCHED) -> History:
    """The schedule, played with these habits; once for all tests that look at it."""
    return Federation(case.module(), case.settings, habits).run()


def oracle_of(name: str) -> type[Oracle]:
    """A method's oracle; a method without one has not been shown to do what its specification says."""
    if name not in ORACLES:
        raise AssertionError(
            f"the method {name!r} has no oracle: write it once more in numpy, from the specification and not"
            f" from its file, and add it to ORACLES in {__name__}; there are {', '.join(sorted(ORACLES))}"
        )
    return ORACLES[name]
