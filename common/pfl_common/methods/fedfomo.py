"""FedFomo: a site is sent the models of the sites that helped it most, and mixes them by how much they help.

Zhang et al., Personalized Federated Learning with First Order Model Optimization (ICLR 2021).
Rule: the coordinator keeps each site's last model and who liked whom, P, at first the identity, and sends site i the M
models with the largest P[i, k]. On a part of its training data that it holds out the site weighs each model w_k by
q_k = (L(w_old) - L(w_k)) / (||w_k - w_old|| + 1e-5), where w_old is its last mix. The positive q, scaled to a sum of 1,
mix its next model; if none is, it keeps its own. Then it trains E epochs on the rest of its data and predicts with
the result. Its raw q are added to P[i, k].
Travels up: the model and q, shown. Down: M models, in the branches `slot0`, `slot1` and so on; fewer while fewer sites
have sent one. A new site gets the mean of all, and starts from it; to be measured the others are sent nothing.
Stays: the model and `old`.
Departures: exploration is off unless `epsilon` is set, as in the library that most comparisons used. With it an entry
is replaced by a model that was not chosen, drawn from (run's seed, site, round). Equal P go by the sites' names.
Costs: up as FedAvg, down M times as much, in round 1 too. A site holds M + 1 models more and passes M + 1 times more
over the samples it holds out, which train nothing. The coordinator keeps N models on disk.
Choice: for sites that trust each other, when some have data alike and nobody knows which. Not where a model may not be
seen: other sites get it as it is. With many sites set `epsilon`, or most are never tried.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from math import inf, isnan
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.learning import newcomer, sgd, single_models
from pfl_common.learning.held_out import hold_out, loss_with
from pfl_common.learning.measures import band
from pfl_common.learning.method import (
    STRICT,
    Arrivals,
    Closed,
    LocalData,
    Metrics,
    Participant,
    Samples,
    Settings,
)
from pfl_common.learning.partition import travelling
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.run import ClientId, Kind, RunSpec, Task
from pfl_common.tensors.state import Kept, State, load_into
from pfl_common.tensors.update import Quantity, Up

FADING = 0.05
"""By so much the chance to explore falls from round to round."""
MOST_LIKED = 1e9
"""A loss that falls by 10,000 over a distance of 0 gives this; an answer that says more is made up."""


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """How many models a site gets, and what it tries them on."""

    M: Annotated[int, Field(ge=1, le=100), Why("a site holds so many models at once; the usual is 5")] = 5
    """M: models sent to a site in one round."""
    val_ratio: Annotated[
        float, Field(ge=0.001, le=0.9), Why("what is held out does not train; the paper's is 0.2")
    ] = 0.2
    """The share of a site's training samples, at least one, that models are weighed on and none is trained on."""
    epsilon: Annotated[float, Field(ge=0, le=1), Why("it is a probability; the paper's is 0.3")] = 0.0
    """epsilon: chance in round 1 that a chosen model is replaced by another site's; 0.05 less in each further round."""
    eval_point: Literal["pre", "post", "both"] = "post"
    """Measure after local training, as the paper does; before it the model is that of the round before."""
    aggregation: Literal["samples"] = "samples"
    """Without another choice: models are weighed by the sites that get them."""


class Client(Participant):
    """Mix what helps, then train; the model is the site's own in every round."""

    settings: Config
    head: nn.Module
    whole_batch = ""
    beside: ClassVar[Mapping[str, Quantity]] = {"liked": "number"}
    """Likings have a bound of their own."""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self.old = nn.ModuleDict(copy.deepcopy({"encoder": self.encoder, "head": self.head}))
        self._offers: dict[str, State] = {}
        self._liked = torch.zeros(config.M)

    def travels(self, phase: str) -> Iterable[str]:
        """Nothing is summed and nothing overwritten: the model is shown, and a download is only an offer."""
        return ()

    def sent(self) -> set[str]:
        """Names of the model that is shown and mixed."""
        return travelling(self, self.settings.bn_policy, ["encoder", "head"])

    def tells(self, phase: str) -> set[str]:
        """The model is the site's own, and shown."""
        return self.sent()

    def receive(self, down: State, task: Task) -> None:
        """A new site starts from what it gets; the others decide when they see their data."""
        if task.is_first:
            load_into(self, down.under("slot0"))
        else:
            self._offers = down.branches()

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """Mix the offers, remember the mix, train E epochs on what is not held out."""
        training, samples = hold_out(data, self.settings.val_ratio)
        self._mix(samples)
        load_into(self.old, State.view(self, self.sent()))
        loss = sgd.train(self, self._model(), self._loss, data=training, task=task)
        return {"loss": loss}

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """Training alone, from the mean that a new site starts from: there are no offers to mix."""
        training, _ = hold_out(data, self.settings.val_ratio)
        load_into(self.old, State.view(self, self.sent()))
        return newcomer.fit(self, self._loss, data=training, task=task, parameters=self._model())

    def _model(self) -> list[nn.Parameter]:
        """What is trained."""
        return [*self.encoder.parameters(), *self.head.parameters()]

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self(x), y)

    def _mix(self, held_out: Samples) -> None:
        """w_i := sum of q_k w_k over what lowers the loss; remembers the raw q of each slot."""
        before = State.view(self.old, self.sent())
        loss, likings = loss_with(self, before, held_out), {}
        for slot, offer in self._offers.items():
            gap = single_models.squared_distance(offer, before) ** 0.5
            likings[slot] = _like(loss, loss_with(self, offer, held_out), gap)
        self._liked = torch.tensor([likings.get(f"slot{place}", 0.0) for place in range(self.settings.M)])
        helpful = {slot: q for slot, q in likings.items() if q > 0}
        if helpful:
            shares = {slot: q / sum(helpful.values()) for slot, q in helpful.items()}
            load_into(self, {name: self._mean(name, shares) for name in before})

    def _mean(self, name: str, shares: Mapping[str, float]) -> Tensor:
        """One tensor of the mix."""
        return sum((q * self._offers[slot][name] for slot, q in shares.items()), start=torch.zeros(()))

    def report(self, data: LocalData, task: Task) -> Up:
        """The whole model, and how each slot was liked."""
        return Up(shown=State.of(self, self.sent()).within("model") | {"liked": self._liked})


class Server:
    """Keep everybody's last model, and choose for each site whose to send."""

    def __init__(self, config: Config, spec: RunSpec) -> None:
        self.config, self.spec = config, spec

    def start(self, template: Client, seed: int) -> State:
        """The first model; who likes whom is known only of sites that have answered."""
        return State.of(template, template.sent()).within("first")

    def begin(self, first: State, last: State) -> State:
        """Everybody's last model, and who likes whom."""
        return first | State({name: last[name] for name in last.keys() - first.keys()}, kept=last.kept)

    def welcome(self, state: State) -> State:
        """A new site gets the mean of all models, at first in every slot: a run's parcels have the names seen then."""
        common = single_models.mean(state.kept, state.under("first"))
        return _fill([common] if state.kept else [common] * self.config.M)

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """The models that a site which is to train liked best so far; only these are read."""
        if task.kind is not Kind.TRAIN:
            return State()
        return _fill(
            [state.kept[peer].load().under("model") for peer in self.peers(state, client, task.round)]
        )

    def peers(self, state: State, client: ClientId, number: int) -> list[ClientId]:
        """Who is in which slot in a round: it follows from the state, so nobody has to remember it."""
        ranked = sorted(state.kept, key=lambda peer: (-float(_liking(state, client, peer)), peer))
        chosen, others = ranked[: self.config.M], ranked[self.config.M :]
        chance = self.config.epsilon - FADING * (number - 1)
        draw = generators.generator(self.spec.seed, client, number, "explore")
        for slot in range(len(chosen)):
            if others and float(torch.rand((), generator=draw)) < chance:
                chosen[slot] = others.pop(int(torch.randint(len(others), (), generator=draw)))
        return chosen

    def compared(self, state: State, client: ClientId) -> State:
        """The site's own last model, before there is one the first."""
        own = state.kept.get(client)
        return (own.load().under("model") if own else state.under("first")).within("show.model")

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """Keep the new models; add what each site answered to what it said before, slot by slot.

        Told: how many of the models they were sent helped the sites.
        """
        answers, helpful = {}, []
        for client in sorted(arrivals.shown):
            liked = _answers(arrivals.shown[client])
            for slot, peer in enumerate(self.peers(state, client, task.round)):
                answers[f"liking.{client}.{peer}"] = _liking(state, client, peer) + liked[slot]
            helpful.append(int((liked > 0).sum()))
        return Closed(state | State(answers, kept=arrivals.shown), band("helpful", helpful))


def _like(before: float, after: float, gap: float) -> float:
    """q_k: by how much a loss falls over the way to a model. A loss that is no number counts as infinite: of one site's
    broken model the others must not get an answer that cannot be sent.
    """
    before, after = (inf if isnan(loss) else loss for loss in (before, after))
    q = 0.0 if before == after else (before - after) / (gap + 1e-5)
    return max(-MOST_LIKED, min(MOST_LIKED, q))


def _fill(models: list[State]) -> State:
    filled = State()
    for slot, model in enumerate(models):
        filled = filled | model.within(f"slot{slot}")
    return filled


def _liking(state: State, client: ClientId, peer: ClientId) -> Tensor:
    """P[i, k]: the sum of a site's answers on a peer; at first it likes itself alone."""
    return state.get(f"liking.{client}.{peer}", torch.tensor(float(client == peer)))


def _answers(kept: Kept) -> Tensor:
    """What a site said of its slots, within bounds; its model is let go."""
    return kept.load()["liked"].clamp(-MOST_LIKED, MOST_LIKED)


PER_CLIENT = True
DIAGNOSTICS = {
    "loss": "Cross entropy in the last epoch of a site's training.",
    "helpful": "How many of the models a site was sent had a lower loss than its last mix on the samples it holds out: "
    "the mean over the sites counted in a round, and from the fewest to the most.",
}
"""What is told by `learn` and of a round, each number or family of numbers in a sentence."""
NEWCOMER = (
    "Its own model begins at the mean of all sites' models and trains ten times E epochs on what it does not hold "
    "out; no single site's model is shown to it, so it mixes none."
)
SHOWS = "it shows the coordinator, and through it other sites, each site's whole model."
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1, "drop_last": True}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _FEDCP,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
}
"""Settings under one name: the optimiser of the FedCP paper, which compares with FedFomo, for its 4-layer CNN (`paper`)
and for ResNet-18 and fastText. It does not print M, the share held out and epsilon: they are the library's, as ours.
"""
