"""FedAMP: a site is drawn towards a mix of the models that resemble its own.

Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data (AAAI 2021).
Rule: the coordinator keeps each site's last model w_j and sends site i the mix u_i = sum of xi_ij w_j over all j, with
xi_ij = alpha_k exp(-||w_i - w_j||^2 / sigma) / sigma for j != i, and xi_ii = 1 - the sum of the others. The site goes
on from its own w_i, never from u_i, trains E epochs on CE(w) + lambda / (2 alpha_k) ||w - u_i||^2 and predicts with it.
Travels up: the parameters, shown. Down: u_i. Stays: the model. Statistics of batch norms are never sent, for nobody
takes over another's; with `local_bn` their scale and shift are neither sent nor compared nor drawn. A site without
a model at the coordinator is drawn to the mean of all that are there, in round 1 to the first model. To be measured a
site needs nothing and is sent nothing.
Departures: if the weights of the others exceed 1 they are scaled down to 1, so that xi_ii is 0 and not negative. In
one version of the library's code the pull is not squared, in another the previous u_i stands where w_i does here.
Costs: as many bytes as FedAvg; a site holds one model more. The coordinator keeps N models on disk and compares
all pairs of which one is new, a few in memory at a time: its work grows with N^2.
Choice: for a few sites in groups that differ from each other. The coordinator sees every model. With a large model and
a small sigma all weights but the own one are exactly 0 and each site trains alone: look at the diagnostic `own`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.learning import newcomer, sgd, single_models
from pfl_common.learning.measures import band
from pfl_common.learning.method import STRICT, Arrivals, Closed, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import held_back
from pfl_common.learning.proximal import square_gaps
from pfl_common.models import Backbone
from pfl_common.spec.run import ClientId, Kind, RunSpec, Task
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.update import Up


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """How much alike models attract each other, and how strongly."""

    alpha_k: Annotated[float, Field(ge=1e-9, le=1e9), Why("it divides; the codes' are 0.005 and 1000")] = (
        1000.0
    )
    """alpha_k: step size of the coordinator; the others' weights grow with it, the pull towards u_i falls."""
    lambda_: Annotated[
        float, Field(ge=0, le=1_000_000), Why("less than 0 pushes away; the codes' are 5e-7 and 1")
    ] = 1.0
    """lambda: strength of the pull towards u_i; it is divided by 2 alpha_k."""
    sigma: Annotated[
        float, Field(ge=1e-9, le=1e9), Why("it divides squared distances; the codes' is 0.1")
    ] = 0.1
    """sigma: how far models may lie apart and still attract each other."""
    bn_policy: Literal["local_stats", "local_bn"] = "local_stats"
    """Whether scale and shift of batch norms are compared and drawn to u_i too (local_stats) or not (local_bn)."""
    aggregation: Literal["samples"] = "samples"
    """Without another choice: how much a model counts follows from the models alone."""


class Client(Participant):
    """Train the site's own model, drawn towards the mix it was sent."""

    settings: Config
    whole_batch = ""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self._u = State()

    def travels(self, phase: str) -> Iterable[str]:
        """Nothing is summed and nothing overwritten: the model is shown, and u_i only draws it."""
        return ()

    def sent(self) -> list[str]:
        """Names of the parameters that are shown, compared and drawn."""
        kept_back = held_back(self, self.settings.bn_policy)
        return [name for name, _ in self.named_parameters() if name not in kept_back]

    def tells(self, phase: str) -> list[str]:
        """The model is the site's own, and shown."""
        return self.sent()

    def receive(self, down: State, task: Task) -> None:
        """Remember u_i for this task."""
        self._u = down.under("u")

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy plus the pull towards u_i."""
        loss = sgd.train(self, self.parameters(), self._loss, data=data, task=task)
        return {"loss": loss, "distance": float(self._square().detach()) ** 0.5}

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """A newcomer has no model of its own to go on from: it begins at u_i, and is drawn to it."""
        load_into(self, self._u)
        return newcomer.fit(self, self._loss, data=data, task=task)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        strength = self.settings.lambda_ / (2 * self.settings.alpha_k)
        return cross_entropy(self(x), y) + strength * self._square()

    def _square(self) -> Tensor:
        """||w - u_i||^2."""
        return sum(square_gaps(self, self._u), start=torch.zeros(()))

    def report(self, data: LocalData, task: Task) -> Up:
        """The model, shown."""
        return Up(shown=State.of(self, self.sent()).within("model"))


class Server:
    """Keep everybody's last model and how far apart they lie; mix them for each site."""

    def __init__(self, config: Config, spec: RunSpec) -> None:
        self.config = config

    def start(self, template: Client, seed: int) -> State:
        """The first model, and no distances."""
        first = State.of(template, template.sent()).within("first")
        return first | {"squares": torch.zeros(0, 0, dtype=torch.float64)}

    def begin(self, first: State, last: State) -> State:
        """Everybody's last model, and how far apart they lie."""
        return State({**first, "squares": last["squares"]}, kept=last.kept)

    def welcome(self, state: State) -> State:
        """A new site is drawn to the mean of all models, before there are any to the first one."""
        return single_models.mean(state.kept, state.under("first")).within("u")

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """u_i of a site that is to train; of the models only those are read that have a weight in it."""
        if task.kind is not Kind.TRAIN:
            return State()
        if client not in state.kept:
            return self.welcome(state)
        sites = sorted(state.kept)
        weights = self.weights(state["squares"], sites.index(client))
        return single_models.mix(state.kept, dict(zip(sites, weights, strict=True))).within("u")

    def weights(self, squares: Tensor, own: int) -> list[float]:
        """xi_ij of one site i for all j, its own among them."""
        alpha, sigma = self.config.alpha_k, self.config.sigma
        row = [alpha * exp(-square / sigma) / sigma for square in squares[own].tolist()]
        row[own] = 0.0
        whole = sum(row)
        if whole > 1:
            return [weight / whole for weight in row]
        row[own] = 1 - whole
        return row

    def compared(self, state: State, client: ClientId) -> State:
        """The site's own last model, before there is one the first."""
        own = state.kept.get(client)
        return (own.load().under("model") if own else state.under("first")).within("show.model")

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """Keep the new models, and measure how far they lie from all others.

        Told: how much weight the sites' own models have in what they will be sent.
        """
        kept = {**state.kept, **arrivals.shown}
        squares = single_models.squared_distances(
            kept, state["squares"], before=sorted(state.kept), new=arrivals.shown
        )
        own = [self.weights(squares, place)[place] for place in range(len(kept))]
        return Closed(State({**state, "squares": squares}, kept=kept), band("own", own))


PER_CLIENT = True
DIAGNOSTICS = {
    "loss": "Cross entropy and the pull towards u_i, in the last epoch of a site's training.",
    "distance": "How far a site's model lies from the mix u_i it was drawn to, after training.",
    "own": "The weight of a site's own model in the mix it is sent next: the mean over all sites, and from the least "
    "to the most. Where it is 1 the others lie too far away to matter, and the site trains alone.",
}
"""What is told by `learn` and of a round, each number or family of numbers in a sentence."""
NEWCOMER = (
    "Its own model begins at the mean of all sites' models, which is what it is sent, and trains ten times E epochs "
    "with the pull towards that mean; the mean is taken as it is."
)
SHOWS = "it shows the coordinator each site's whole model."
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1, "drop_last": True}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _FEDCP,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "fedcac": {"lr": 0.1, "momentum": 0.0, "batch": 100, "epochs": 5},
    "repro": {**_FEDCP, "alpha_k": 0.005, "lambda": 5e-7, "sigma": 0.1},
}
"""Settings under one name: the optimisers of the papers that compare with FedAMP, FedCP (`paper`: its 4-layer CNN; the
other: ResNet-18 and fastText) and FedCAC. None of them prints alpha_k, lambda and sigma: ours are the library's later
ones, `repro` has those it had at the time of the published numbers.
"""
