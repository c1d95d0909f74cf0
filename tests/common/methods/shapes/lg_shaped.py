"""Two phases: everything is shared for some rounds, then the head alone, and every site keeps its encoder.

The shape of LG-FedAvg. A site's first download after the switch brings the common encoder as it then was.
Travels: phase "full" the model, phase "head" the head. Stays: phase "head" the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.halves import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning import sgd
from pfl_common.partition import BnPolicy, travelling
from pfl_common.run import ClientId, Task
from pfl_common.tensors import State


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """One symbol."""

    bn_policy: BnPolicy = "share_all"
    """As in FedAvg, while everything is shared."""
    pretrain_rounds: int = 2
    """T_pre: rounds in which everything is shared."""


def phase(config: Config, round: int, rounds: int) -> str:
    """What is shared in a round."""
    return "full" if round <= config.pretrain_rounds else "head"


class Client(Participant):
    """Train encoder and head together, whoever keeps them."""

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
    """The state always holds the encoder; after the switch nobody sends one, so it stays what it was."""

    config: Config

    @property
    def first_phase(self) -> str:
        """A run without shared rounds hands out the first encoder."""
        return "full"

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """The head, and the encoder for whoever has none of its own yet."""
        if task.phase == "full" or task.since <= self.config.pretrain_rounds:
            return state
        return state.only(name for name in state if not name.startswith("encoder."))


PER_CLIENT = True
SHOWS = ""
