"""Local: every site on its own; the yardstick that every federation has to beat.

Rule: each site trains its own model, from the common first values, for E epochs a round. Nothing travels.
Also called Separate, SingleSet or local-only. Measured after training (`eval_point = post`): there is no download.
Travels: nothing. Stays: the model.
Departures: none.
Costs: no bytes but those of orders and scores; memory and time of FedAvg.
Choice: beside every other method, to see what the federation gains. A site with much data of its own, or with data like
nobody's, may be best served by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import JsonValue
from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.learning import sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.spec.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """Local training has no symbols of its own."""

    eval_point: Literal["pre", "post", "both"] = "post"
    """Measure after local training: nothing is received before it."""
    aggregation: Literal["samples"] = "samples"
    """Has no effect here: nothing is averaged."""
    bn_policy: Literal["local_stats"] = "local_stats"
    """Has no effect here: every batch norm stays at its site."""


class Client(Participant):
    """Train what one has."""

    whole_batch = ""

    def travels(self, phase: str) -> Iterable[str]:
        """Nothing."""
        return ()

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


def no_robust(config: Config) -> str:
    """There is no mean."""
    return "no site sends anything"


Server = Averaging
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
NO_NEWCOMER = (
    "It cannot: nothing is shared in this method, so there is no state to fetch; a site of its own trains with `pfl "
    "simulate --method local`."
)
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedpick": {"lr": 0.01, "momentum": 0.5, "batch": 64, "epochs": 1},
    "fedcac": {"lr": 0.1, "momentum": 0.0, "batch": 100, "epochs": 5},
}
"""Settings under one name, each the optimiser of a paper that compares with it: DualFed (`paper`), FedPick, FedCAC."""
