"""LG-FedAvg: every site keeps an encoder of its own, and all share the last layer that names the class.

Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global Representations
(arXiv:2001.01523, 2020).
Rule: a site trains encoder and head together for E epochs. In the first T_pre rounds everything is averaged, as in
FedAvg; afterwards the head alone is, and every site goes on from the common encoder as it was at the switch.
Travels: in the first T_pre rounds the whole model, afterwards the head alone. Stays: afterwards the encoder, with all
its batch norm; counters.
Departures: the paper starts from a FedAvg model trained for hundreds of rounds; here T_pre counts among the run's
rounds. Its code averages uniformly (`aggregation = uniform`). A site that has not trained since the switch gets
the encoder of the switch with the head: its own is older.
Costs: after the switch the head's bytes alone, mostly a few percent of FedAvg's; no more memory or work.
Choice: when images differ so much from site to site that a common encoder hurts, or the line is slow. Sites
with little data learn a poor encoder on their own; let them share for some rounds first (`pretrain_rounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.learning import sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import BnPolicy, travelling
from pfl_common.spec.run import ClientId, Task
from pfl_common.tensors.state import State


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """When sites part."""

    bn_policy: BnPolicy = "share_all"
    """What batch-norm layers share while everything is shared; afterwards those of the encoder stay."""
    pretrain_rounds: Annotated[
        int, Field(ge=0, le=1_000_000), Why("it counts rounds; FedPick has 0 and 20")
    ] = 0
    """T_pre: rounds at the start in which everything is shared."""


def phase(config: Config, round: int, rounds: int) -> str:
    """What is shared in a round."""
    return "full" if round <= config.pretrain_rounds else "head"


class Client(Participant):
    """Train encoder and head together, though only one of them travels."""

    whole_batch = ""

    def travels(self, phase: str) -> Iterable[str]:
        """The model before the switch, the head after it."""
        return travelling(self, self.settings.bn_policy, None if phase == "full" else ["head"])

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


class Server(Averaging):
    """The state always holds an encoder; after the switch nobody sends one, so it stays as it was then."""

    config: Config

    @property
    def first_phase(self) -> str:
        """A run without shared rounds hands out the first encoder."""
        return "full"

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """The head, and the encoder for a site that has not trained since the switch."""
        goes_on = task.before > 0 and not self.config.pretrain_rounds
        if task.phase == "full" or (task.since <= self.config.pretrain_rounds and not goes_on):
            return state
        return state.only(name for name in state if not name.startswith("encoder."))


PER_CLIENT = True
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
NEWCOMER = (
    "Its encoder begins as the common one was at the switch and trains ten times E epochs; the head is taken as it "
    "is (as long as everything is shared, the whole model)."
)
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {
    "lr": 0.01,
    "momentum": 0.5,
    "batch": 256,
    "epochs": 1,
    "bn_policy": "local_stats",
}
_FEDPICK: Mapping[str, JsonValue] = {**_DUALFED, "batch": 64, "bn_policy": "share_all"}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedpick": {**_FEDPICK, "pretrain_rounds": 0},
    "fedpick-office-caltech-10": {**_FEDPICK, "pretrain_rounds": 20},
    "fedpick-domainnet": {**_FEDPICK, "pretrain_rounds": 20},
    "repro": {**_DUALFED, "aggregation": "uniform"},
}
"""The settings of papers that compare with it: `paper` is DualFed's (its tables are with `--encoder-projector`; T_pre
it does not state), `fedpick` that of its Digits-Five. `repro` averages uniformly, as the authors' code; its optimiser
is DualFed's.
"""
