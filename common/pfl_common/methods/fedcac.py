"""FedCAC: each site shares what matters to its data with sites it resembles, and the rest with all.

Wu et al., Bold but Cautious: Unlocking the Potential of Personalized Federated Learning through Cautiously
Aggressive Collaboration (ICCV 2023).
Rule: a site trains its own model and marks the entries with the largest |movement * value| as critical. Sites
whose marks overlap by at least a threshold form a circle; the threshold rises, and once t > beta each site trains its
critical entries independently. The next model has the circle's mean u where the site marked, everybody's mean w
elsewhere (Eq. 11).
Travels up: the whole model, its mask (one bit per parameter) and the number of samples, all shown. Down: w
and u, or the two already merged. Stays: a copy of the model and the mask, for the return after missed rounds.
A site that comes back merges the u of its last counted round with the present w if it has trained in no later
round; if a later update of it was lost, its own values stand in for u. A new site takes w.
Departures from the paper: its overlap formula is a distance (the least similar would win), here it is 1 minus that.
From the authors' code: there the circle of two sites, or of any whose overlaps are equal, would never end; statistics
of batch norms follow u, as the paper says (`bn_stats = local` leaves them alone, as the code does); both means count
sites alike (`aggregation = mixed` weighs w by samples, as the code does). Our own: with `merge_at = server` a merged
model comes in place of w and u, save when own values stand in for u: only the site has them, so it gets w and merges.
With `noncritical = as_critical` own values stand in everywhere.
Costs: a thirty-second more up than FedAvg; down twice as much, with `merge_at = server` as much. A site holds the model
as it came while it trains, and a mask. The coordinator keeps the last round's models on disk, compares all pairs of
masks and reads a circle's models, one at a time, for each reply: its work grows with N^2.
Choice: when sites' data differ and only some resemble each other, and the coordinator may see every model. In a short
run set beta to the number of rounds in which sites are to collaborate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why, refuse_idle
from pfl_common.learning import mask_overlaps as overlap
from pfl_common.learning import masks as marking
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.measures import band
from pfl_common.learning.method import STRICT, Arrivals, Closed, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import floating, running_statistics
from pfl_common.learning.received import as_received
from pfl_common.models import Backbone
from pfl_common.spec.data_description import MOST_SAMPLES
from pfl_common.spec.run import ClientId, RunSpec, Task
from pfl_common.tensors.state import State, load_into, read_words, spell
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Quantity, Up, Weighted


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """What is critical, who collaborates on it, and until when."""

    tau: Annotated[float, Field(ge=0, le=1), Why("it is a share; the paper's are 0.4 and 0.5")] = 0.5
    """tau: the share of each parameter tensor that counts as critical."""
    beta: Annotated[
        float, Field(gt=0, le=1_000_000), Why("it counts rounds; the paper's are 100 and 170")
    ] = 100.0
    """beta: the last round in which sites collaborate on critical entries."""
    selection: marking.Selection = "sensitivity"
    """What is critical: the most sensitive entries, a random share each round, or the least sensitive."""
    collab: overlap.Collaboration = "time_varying"
    """C_i: sites above the rising threshold, none, or always the 1 or 5 sites of largest overlap."""
    noncritical: Literal["all", "as_critical"] = "all"
    """Take the other entries from everybody's mean (all), or from the circle's mean too (as_critical)."""
    overlap_norm: overlap.Norm = "row"
    """O_ij: masks that differ, relative to the site's own mask (row) or to both masks (dice)."""
    bn_stats: Literal["u", "local"] = "u"
    """Statistics of batch norms are critical and follow u, or are never sent nor changed (local)."""
    merge_at: Literal["client", "server"] = "client"
    """Who merges u and w; at the server half as much is sent down."""
    aggregation: Literal["samples", "uniform", "mixed"] = "uniform"  # type: ignore[assignment]  # one value more
    """Whether sites count alike in u and w (Eq. 9, 10), by their number of training samples, or alike in u and by
    samples in w (mixed).
    """
    bn_policy: Literal["local_stats"] = "local_stats"
    """Has no effect here: `bn_stats` says what becomes of a batch norm's statistics."""

    def __post_init__(self) -> None:
        if self.collab == "none":
            refuse_idle(self, "overlap_norm", beside="a collab other than none")


class Client(Participant):
    """Train the site's own model, find what is critical in it, and merge it with others'."""

    settings: Config
    mask: Tensor
    has_mask: Tensor
    whole_batch = ""
    beside: ClassVar[Mapping[str, Quantity]] = {"mask": "number", "samples": "count"}
    """A mask is bits, of which every pattern is one."""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        size = sum(parameter.numel() for parameter in self.parameters())
        self.register_buffer("mask", torch.zeros(-(-size // 8), dtype=torch.uint8))
        self.register_buffer("has_mask", torch.zeros((), dtype=torch.int64))
        self._came = State()

    def travels(self, phase: str) -> Iterable[str]:
        """Nothing is summed as such: the coordinator needs single models."""
        return ()

    def tells(self, phase: str) -> Iterable[str]:
        """The model is the site's own, and shown with its mask."""
        return _names(self, self.settings) | {"mask"}

    @property
    def owns_statistics(self) -> bool:
        """Only when `bn_stats = local`; otherwise even a new site gets everybody's."""
        return self.settings.bn_stats == "local"

    def receive(self, down: State, task: Task) -> None:
        """Take over the merged model, or merge it here; without a mask everybody's mean is the model."""
        self._came = self._choose(down.branches())
        load_into(self, self._came)

    def _choose(self, branches: Mapping[str, State]) -> State:
        """The values to go on from."""
        if "merged" in branches:
            return branches["merged"]
        shared = branches["w"]
        if not self.has_mask:
            return shared
        critical = branches["u"] if "u" in branches else State.of(self, shared)
        return _merge(self.settings, self.critical(), critical, shared=shared)

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy, then a new mask from how far each entry went."""
        before, former = as_received(self, self._came), self.mask.clone()
        self._came = State()
        loss = sgd.train(self, self.parameters(), self._loss, data=data, task=task)
        found = self._mark(before, data.generator(task, "critical"))
        steadiness = marking.jaccard(former, found.packed)
        told = {"loss": loss, "mask_density": found.density, "mask_jaccard": steadiness}
        return told | {f"marked/{name}": share for name, share in found.shares.items()}

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self(x), y)

    def _mark(self, before: Mapping[str, Tensor], generator: torch.Generator) -> marking.Marks:
        """Find what is critical from how far each entry went, and remember it."""
        chosen, after = self.settings, {name: value.detach() for name, value in self.named_parameters()}
        found = marking.find(before, after, chosen.selection, chosen.tau, generator)
        self.mask.copy_(found.packed)
        self.has_mask.fill_(1)
        return found

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """As a site that is alone in its circle: train, mark, and take everybody's mean where nothing is marked."""
        mean, told = State.of(self, _names(self, self.settings)), Metrics()
        for turn in range(newcomer.ROUNDS):
            told = {"loss": self._train_and_mark(data, task, turn)}
            load_into(self, _merge(self.settings, self.critical(), State.of(self, mean), shared=mean))
        return told

    def _train_and_mark(self, data: LocalData, task: Task, turn: int) -> float:
        """One round on its own, its shuffles numbered on; gives its loss."""
        before = State.of(self, [name for name, _ in self.named_parameters()])
        first = turn * self.settings.epochs
        loss = sgd.train(self, self.parameters(), self._loss, data=data, task=task, first_epoch=first)
        self._mark(before, data.generator(task, "critical", turn))
        return loss

    def report(self, data: LocalData, task: Task) -> Up:
        """The model, its mask and the number of samples, shown."""
        small = {"mask": self.mask.clone(), "samples": torch.tensor(len(data.train))}
        return Up(shown=State.of(self, _names(self, self.settings)).within("w") | small)

    def critical(self) -> dict[str, Tensor]:
        """The mask of each parameter as it was found in the last round this site trained in."""
        return marking.unpack(self.mask, dict(self.named_parameters()))


class Server:
    """Keep everybody's mean, who is in whose circle, and the updates that some circle still needs."""

    def __init__(self, config: Config, spec: RunSpec) -> None:
        self.config, self.spec = config, spec

    def start(self, template: Participant, seed: int) -> State:
        """The first model as everybody's mean, and which of its names are statistics and have no mask."""
        names = _names(template, self.config)
        statistics = spell(sorted(running_statistics(template) & names))
        return State.of(template, names).within("w") | {"statistics": statistics}

    def begin(self, first: State, last: State) -> State:
        """Everybody's mean. The last circles end: a site begins with its own critical values."""
        return first | last.under("w").within("w")

    def welcome(self, state: State) -> State:
        """A new site gets everybody's mean."""
        return state.under("w").within("w")

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """Everybody's mean and, for a site that has yet to merge the round it was last counted in, its u."""
        own, circle = f"{client}@{task.since}", overlap.read_circle(state, client)
        if own not in circle:
            return self.welcome(state)
        shared, total = state.under("w"), Sum()
        for key in circle:
            total.add(self._terms(state.kept[key].load(), weigh=self.config.aggregation == "samples"))
        critical = total.mean(otherwise=shared)
        if self.config.merge_at == "client":
            return shared.within("w") | critical.within("u")
        masks = marking.unpack(state.kept[own].load()["mask"], _masked(state))
        return _merge(self.config, masks, critical, shared=shared).within("merged")

    def compared(self, state: State, client: ClientId) -> State:
        """Everybody's mean."""
        return state.under("w").within("show.w")

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """A new mean and new circles among the counted sites; the other sites' circles stay as they were.

        Told: how alike the sites' masks are, and how many others each has in its circle.
        """
        sites = sorted(arrivals.shown)
        if not sites:
            return Closed(state, {})
        total, entries = Sum(), sum(value.numel() for value in _masked(state).values())
        masks = [self._fold(total, arrivals.shown[site].load(), entries) for site in sites]
        mean = total.mean(otherwise=state.under("w")).within("w")
        table = overlap.overlaps(masks, self.config.overlap_norm)
        rows = overlap.circles(table, self.config.collab, number=task.round, beta=self.config.beta)
        kept = state.kept | {f"{site}@{task.round}": one for site, one in arrivals.shown.items()}
        circles = overlap.spell_circles(sites, rows, task.round)
        closed = overlap.keep_circles(State({**state, **mean, **circles}, kept=kept))
        told = overlap.tell(table, self.config.collab, number=task.round, beta=self.config.beta)
        marked, others = [marking.count_marks(mask) / entries for mask in masks], list(map(len, rows))
        return Closed(closed, told | band("critical", marked) | band("circle", others))

    def _fold(self, total: Sum, update: State, entries: int) -> Tensor:
        """Add an update to everybody's mean and give its mask: the model is let go before the next one is read."""
        total.add(self._terms(update, weigh=self.config.aggregation != "uniform"))
        return marking.cut_padding(update["mask"], entries)

    def _terms(self, update: State, *, weigh: bool) -> dict[str, Weighted]:
        # What a site says of its samples has bounds: a made-up number may not drown the others.
        weight = update["samples"].clamp(1, MOST_SAMPLES) if weigh else torch.tensor(1)
        return {name: Weighted(value, weight) for name, value in update.under("w").items()}


def _names(module: nn.Module, config: Config) -> set[str]:
    """What is sent of a model; integer counters never are."""
    return floating(module) - (running_statistics(module) if config.bn_stats == "local" else set())


def _masked(state: State) -> State:
    """Everybody's mean of what has a mask: parameters, not statistics."""
    shared = state.under("w")
    return shared.only(shared.keys() - set(read_words(state["statistics"])))


def _merge(
    config: Config, masks: Mapping[str, Tensor], critical: Mapping[str, Tensor], *, shared: State
) -> State:
    """Critical values where the mask says so, shared ones elsewhere (Eq. 11); without a mask: critical."""
    masked = masks if config.noncritical == "all" else {}
    mixed = {name: torch.where(masked[name], critical[name], shared[name]) for name in masked}
    return State({**critical, **mixed})


PER_CLIENT = True
DIAGNOSTICS = {
    "loss": "Cross entropy in the last epoch of a site's training.",
    "mask_density": "The share of a site's parameters that it marked as critical.",
    "marked": "The share of each parameter tensor that a site marked: tau, more where entries are equally sensitive, "
    "less where fewer moved.",
    "mask_jaccard": "How much of a site's marks stayed since it trained before: 1 all, 0 none or its first round.",
    "circle": "How many others a site shares its critical entries with: the mean over the sites counted in a "
    "round, and from the fewest to the most. It falls as the threshold rises, until everybody is alone.",
    "critical": "The share of parameters marked as critical: the mean over counted sites, from least to most.",
    "overlap": "How alike two sites' marks are, 1 for equal ones: the mean and the most over all pairs of counted "
    "sites, and the threshold a pair has to reach to share.",
}
"""What is told by `learn` and of a round, each number or family of numbers in a sentence."""
NEWCOMER = (
    "It trains the whole model E epochs, keeps what it marks as critical and puts the rest back to everybody's "
    "mean, ten times over; that mean is taken as it is."
)
SHOWS = "it shows the server each client's whole model and its critical mask."
_PAPER: Mapping[str, JsonValue] = {"lr": 0.1, "momentum": 0.0, "batch": 100, "epochs": 5}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _PAPER,
    "cifar-10": {**_PAPER, "tau": 0.5, "beta": 100.0},
    "cifar-100": {**_PAPER, "tau": 0.4, "beta": 170.0},
    "tiny-imagenet": {**_PAPER, "tau": 0.5, "beta": 170.0},
    "repro": {**_PAPER, "momentum": 0.9, "bn_stats": "local", "aggregation": "mixed"},
}
"""Settings under one name: the paper's optimiser, which names no momentum, with each data set's tau and beta, or the
authors' code. The tau of 0.4 is from their configurations; the paper says 0.5, slightly adjusted.
"""
