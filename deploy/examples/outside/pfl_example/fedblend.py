"""FedBlend: go on from a blend of the federation's model and one's own.

An example of this repository, after the model interpolation of Mansour et al., Three Approaches for Personalization
with Applications to Federated Learning (arXiv:2002.10619, 2020, sec. 5).
Rule: a site sets its model to β · received + (1 − β) · its own of the round before, trains it for E epochs and predicts
with it; the next model is the mean weighted by training samples.
Travels: the whole model, less what `bn_policy` keeps at home. Stays: the site's own model.
Departures: the paper learns β for each site from its data; here it is one number for all.
Costs: FedAvg's bytes; one more model kept at the site.
Choice: to see how much of the common model a site wants. With β = 1 it is FedAvg, near 0 training alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.learning import sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State, load_into


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """FedBlend's one symbol."""

    beta: Annotated[float, Field(gt=0, le=1), Why("with 0 nothing of the others arrives: that is local")] = (
        0.5
    )
    """β: the share of the received model in the blend."""


class Client(Participant):
    """Blend, then train."""

    settings: Config
    whole_batch = ""

    def stays(self, phase: str) -> Iterable[str]:
        """All of it: the next blend needs the site's own values."""
        return self.state_dict().keys()

    def receive(self, down: State, task: Task) -> None:
        """β of what came, the rest of what was here; at first contact there is nothing here yet."""
        if task.since == 0:
            load_into(self, down)
            return
        beta, own = self.settings.beta, State.view(self, down)
        load_into(self, {name: beta * came + (1 - beta) * own[name] for name, came in down.items()})

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


Server = Averaging
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
SHOWS = ""
