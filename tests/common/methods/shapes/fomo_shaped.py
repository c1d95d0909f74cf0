"""Slots and replies of its own for each site: a site is sent the models of those that helped it most.

The shape of FedFomo. The coordinator keeps each site's last update, by reference, and who liked whom.
A site mixes what it is sent by how much each model lowers its validation loss, then trains.
Shown: the model (`model`), how each slot was liked (`liked`). Stays: everything, with the last mix (`old`).
A download has the branches `slot0`, `slot1`, …; it has fewer while fewer sites have sent anything.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from pfl_common.halves import STRICT, Arrivals, LocalData, Metrics, Participant, Settings, Up
from pfl_common.learning import sgd
from pfl_common.models import Backbone
from pfl_common.partition import travelling
from pfl_common.run import ClientId, RunSpec, Task
from pfl_common.sums import Sum, Weighted
from pfl_common.tensors import State, flat, load_into


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """One symbol."""

    slots: int = 2
    """M: models sent to a site in one round."""
    eval_point: Literal["pre", "post", "both"] = "post"
    """The prediction is that of the model after local training."""
    aggregation: Literal["samples"] = "samples"
    """Has no effect here: nothing is summed."""


class Client(Participant):
    """Mix, then train; the model is the site's own in every round."""

    settings: Config

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        model = {"encoder": backbone.encoder, "head": self.get_submodule("head")}
        self.old = nn.ModuleDict(copy.deepcopy(model))
        self._offers: dict[str, State] = {}
        self._liked = torch.zeros(config.slots)

    def travels(self, phase: str) -> Iterable[str]:
        """Nothing is summed and nothing overwritten: the model is shown, and a download is only an offer."""
        return ()

    def shared(self) -> set[str]:
        """Names of the model that is shown."""
        return travelling(self, self.settings.bn_policy, ["encoder", "head"])

    def receive(self, down: State, task: Task) -> None:
        """A new site starts from what it gets; the others decide when they see their data."""
        if task.since == 0:
            load_into(self, down.under("slot0"))
        else:
            self._offers = down.branches()

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """Mix the offers, remember the mix, train E epochs."""
        self._mix(data)
        load_into(self.old, State.of(self, self.shared()))
        trained = [*self.encoder.parameters(), *self.get_submodule("head").parameters()]
        loss = sgd.train(self, trained, lambda x, y: cross_entropy(self(x), y), data=data, task=task)
        return {"loss": loss}

    def _mix(self, data: LocalData) -> None:
        before = State.of(self.old).only(self.shared())
        self._liked = flat(before).new_zeros(self.settings.slots)
        for name, offer in self._offers.items():
            gain = self._validate(before, data) - self._validate(offer, data)
            distance = torch.linalg.vector_norm(flat(offer) - flat(before))
            self._liked[int(name.removeprefix("slot"))] = gain / (distance + 1e-5)
        wanted = self._liked.clamp(min=0)
        if wanted.any():
            weights = wanted / wanted.sum()
            names = [(offer, weights[int(name.removeprefix("slot"))]) for name, offer in self._offers.items()]
            load_into(self, {n: sum(w * offer[n] for offer, w in names) for n in before})

    @torch.no_grad()
    def _validate(self, model: State, data: LocalData) -> Tensor:
        """The loss this model would have at the site."""
        self.eval()
        samples = data.validation if len(data.validation) else data.train
        losses = [
            cross_entropy(functional_call(self, dict(model), (x,)), y, reduction="sum").double()
            for x, y in samples.batches(self.settings.batch)
        ]
        return torch.stack(losses).sum() / len(samples)

    def report(self, data: LocalData, task: Task) -> Up:
        """The whole model, and how much each slot was liked."""
        model = State.of(self, self.shared()).within("model")
        return Up(shown=model | {"liked": self._liked})


class Server:
    """Keep everybody's last update; choose for each site whose to send."""

    def __init__(self, config: Config, spec: RunSpec) -> None:
        self.config = config

    def start(self, template: Client, seed: int) -> State:
        """The first model; who likes whom is known only of sites that have answered."""
        return State.of(template, template.shared()).within("first")

    def welcome(self, state: State) -> State:
        """A new site gets the mean of all models, in every slot: no download has other names."""
        total = Sum()
        for client in sorted(state.kept):
            model = state.kept[client].load().under("model")
            total.add({name: Weighted(value, torch.tensor(1)) for name, value in model.items()})
        return self._fill([total.mean(state.under("first"))] * self.config.slots)

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """The models this site liked best so far; read from the spool only now."""
        return self._fill([state.kept[peer].load().under("model") for peer in self.peers(state, client)])

    def _fill(self, models: list[State]) -> State:
        filled = State()
        for slot, model in enumerate(models):
            filled = filled | model.within(f"slot{slot}")
        return filled

    def peers(self, state: State, client: ClientId) -> list[ClientId]:
        """Who is in which slot: a function of the state, so nobody has to remember it."""
        ranked = sorted(state.kept, key=lambda peer: (-float(self.liking(state, client, peer)), peer))
        return ranked[: self.config.slots]

    def liking(self, state: State, client: ClientId, peer: ClientId) -> Tensor:
        """The sum of a site's answers on a peer; at first it likes itself only."""
        return state.get(f"liking.{client}.{peer}", torch.tensor(float(client == peer)))

    def close(self, state: State, arrivals: Arrivals, task: Task) -> State:
        """Keep the new updates; add what each site answered to what it said before, slot by slot."""
        answers = {}
        for client in sorted(arrivals.shown):
            liked = arrivals.shown[client].load()["liked"]
            for slot, peer in enumerate(self.peers(state, client)):
                answers[f"liking.{client}.{peer}"] = self.liking(state, client, peer) + liked[slot]
        return state | State(answers, kept=arrivals.shown)


PER_CLIENT = True
SHOWS = "it shows the coordinator, and through it other sites, each site's whole model."
