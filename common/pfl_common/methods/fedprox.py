"""FedProx: FedAvg in which a site's training is held back near the model it received.

Li et al., Federated Optimization in Heterogeneous Networks (MLSys 2020).
Rule: each site trains the received model w^t for E epochs on L = CE + (mu/2) ‖w − w^t‖²; the next model is the
mean weighted by training samples.
Travels: the whole model; batch-norm statistics too (`share_all`), as in FedAvg. Stays: nothing but counters.
Departures: from the paper, that every site runs all its epochs (there slow ones may stop early). From a code
that others copied (FedBN's): the norm is squared, and the pull acts from the first step on. All parameters are
pulled; those that `bn_policy` keeps at the site are pulled towards their value at the start of the round.
Costs: the bytes of FedAvg; hardly more memory and work.
Choice: when FedAvg swings from round to round because sites differ or train long. It makes one model for
everybody, so where sites need models of their own choose another method; with a large mu nobody learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.learning import sgd
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import BnPolicy
from pfl_common.learning.proximal import distance, square_distance
from pfl_common.learning.received import as_received
from pfl_common.models import Backbone
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """One symbol."""

    mu: Annotated[float, Field(ge=0, le=1000), Why("less than 0 pushes away; usual are 0.001 to 1")] = 0.01
    """mu: strength of the pull towards the received model; 0 is FedAvg."""
    bn_policy: BnPolicy = "share_all"
    """What batch-norm layers share; FedAvg averages everything."""


class Client(Participant):
    """Train what was received, near to where it was."""

    settings: Config
    whole_batch = ""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self._came = State()

    def receive(self, down: State, task: Task) -> None:
        """Take over what came, and remember where it lies."""
        super().receive(down, task)
        self._came = down

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy and the pull back."""
        received, self._came = as_received(self, self._came), State()

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(self(x), y) + self.settings.mu / 2 * square_distance(self, received)

        mean = sgd.train(self, self.parameters(), loss, data=data, task=task)
        return {"loss": mean, "moved": distance(self, received)}


Server = Averaging
DIAGNOSTICS = {
    "loss": "Cross entropy and the pull back, in the last epoch of a site's training.",
    "moved": "How far a site's training went from the model it received: the norm of the difference of all "
    "parameters. A larger mu makes it smaller.",
}
"""What is told by `learn`, each number in a sentence."""
NEWCOMER = (
    "The shared model is taken as it is: nothing is personal but batch norms under another `bn_policy`, whose "
    "statistics are filled in one pass (with local_bn their scale and shift train ten times E epochs)."
)
SHOWS = ""
_LOCAL: Mapping[str, JsonValue] = {"epochs": 1, "bn_policy": "local_stats"}
_DUALFED: Mapping[str, JsonValue] = {**_LOCAL, "lr": 0.01, "momentum": 0.5, "batch": 256}
_FEDCP: Mapping[str, JsonValue] = {
    **_LOCAL,
    "lr": 0.005,
    "momentum": 0.0,
    "batch": 10,
    "drop_last": True,
    "mu": 0.001,
}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "fedpick": {**_DUALFED, "batch": 64, "bn_policy": "share_all", "mu": 0.01},
}
"""The settings of papers that compare with it: `paper` is DualFed's (its tables are with `--encoder-projector`);
`fedcp` is for GPFL too (4-layer CNN, or ResNet-18 and fastText). mu is stated by FedPick alone; 0.001 is the example
of the library FedCP used.
"""
