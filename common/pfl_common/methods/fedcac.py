"""FedCAC: each site shares what matters to its data with sites it resembles, and the rest with all.

Wu et al., Bold but Cautious: Unlocking the Potential of Personalized Federated Learning through Cautiously
Aggressive Collaboration (ICCV 2023).
Rule: a site trains its own model and marks the entries with the largest |movement * value| as critical. Sites
whose marks overlap by at least a threshold form a circle; it rises until round beta, after which everybody is
alone. The next model has the circle's mean u where the site marked, everybody's mean w elsewhere (Eq. 11).
Travels up: the whole model, its mask (one bit per parameter) and the number of samples, all shown. Down: w
and u, or the two already merged. Stays: a copy of the model and the mask, for the return after missed rounds.
A site that comes back merges the u of its last counted round with the present w if it has trained in no later
round; if a later update of it was lost, its own values stand in for u. A new site takes w.
Departures from the paper: its overlap formula is a distance (the least similar would win), here it is 1 minus
that; after round beta circles are empty by rule, since with equal overlaps the threshold would not end them.
From the authors' code: `bn_stats = local`, where batch norms' statistics are neither sent nor changed; by
default they follow u, as the paper says. Our own: with `merge_at = server` a merged model comes in place of w
and u, save when own values stand in for u: only the site has them, so it gets w and merges. With
`noncritical = as_critical` own values stand in everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.config import Why
from pfl_common.halves import STRICT, Arrivals, LocalData, Metrics, Participant, Settings, Up
from pfl_common.learning import overlap, sgd
from pfl_common.models import Backbone
from pfl_common.partition import floating, running_statistics
from pfl_common.run import ClientId, RunSpec, Task
from pfl_common.sums import Sum, Weighted
from pfl_common.tensors import State, load_into


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """What is critical, who collaborates on it, and until when."""

    tau: Annotated[float, Field(ge=0, le=1), Why("it is a share; the paper's are 0.4 and 0.5")] = 0.5
    """tau: the share of each parameter tensor that counts as critical."""
    beta: Annotated[
        float, Field(gt=0, le=1_000_000), Why("it counts rounds; the paper's are 100 and 170")
    ] = 100.0
    """beta: the last round in which sites collaborate on critical entries."""
    selection: Literal["sensitivity", "random", "reverse"] = "sensitivity"
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
    aggregation: Literal["samples", "uniform"] = "uniform"
    """Whether sites count alike in u and w (Eq. 9, 10), or by their number of training samples."""
    bn_policy: Literal["local_stats"] = "local_stats"
    """Has no effect here: `bn_stats` says what becomes of a batch norm's statistics."""


class Client(Participant):
    """Train the site's own model, find what is critical in it, and merge it with others'."""

    settings: Config
    mask: Tensor
    has_mask: Tensor

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        size = sum(parameter.numel() for parameter in self.parameters())
        self.register_buffer("mask", torch.zeros(-(-size // 8), dtype=torch.uint8))
        self.register_buffer("has_mask", torch.zeros((), dtype=torch.int64))

    def travels(self, phase: str) -> Iterable[str]:
        """Nothing is summed as such: the coordinator needs single models."""
        return ()

    @property
    def owns_statistics(self) -> bool:
        """Only when `bn_stats = local`; otherwise even a new site gets everybody's."""
        return self.settings.bn_stats == "local"

    def receive(self, down: State, task: Task) -> None:
        """Take over the merged model, or merge it here; without a mask everybody's mean is the model."""
        branches = down.branches()
        if "merged" in branches:
            load_into(self, branches["merged"])
        elif not self.has_mask:
            load_into(self, branches["w"])
        else:
            critical = branches.get("u", State.of(self, branches["w"]))
            load_into(self, _merge(self.settings, self.critical(), critical, shared=branches["w"]))

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy, then a new mask from how far each entry went."""
        before = {name: value.detach().clone() for name, value in self.named_parameters()}
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        masks = self._select(before, data.generator(task, "critical"))
        packed = overlap.pack(masks)
        steadiness = overlap.jaccard(self.mask, packed)
        self.mask.copy_(packed)
        self.has_mask.fill_(1)
        return {"loss": loss, "mask_density": overlap.density(masks), "mask_jaccard": steadiness}

    def report(self, data: LocalData, task: Task) -> Up:
        """The model, its mask and the number of samples, shown."""
        small = {"mask": self.mask.clone(), "samples": torch.tensor(len(data.train))}
        return Up(shown=State.of(self, _names(self, self.settings)).within("w") | small)

    def critical(self) -> dict[str, Tensor]:
        """The mask of each parameter as it was found in the last round this site trained in."""
        return overlap.unpack(self.mask, dict(self.named_parameters()))

    def _select(self, before: Mapping[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        masks, tau = {}, self.settings.tau
        for name, after in sorted(self.named_parameters()):
            scores = overlap.sensitivity(before[name], after.detach())
            if self.settings.selection == "random":
                masks[name] = overlap.drawn(scores, tau, generator)
            elif self.settings.selection == "reverse":
                masks[name] = overlap.least_sensitive(scores, tau)
            else:
                masks[name] = overlap.most_sensitive(scores, tau)
                if masks[name].all() and not (scores > overlap.NOTHING).any():
                    _log.warning("%s did not move in training: all of it counts as critical", name)
        return masks


class Server:
    """Keep everybody's mean, who is in whose circle, and the updates that some circle still needs."""

    def __init__(self, config: Config, spec: RunSpec) -> None:
        self.config, self.spec = config, spec

    def start(self, template: Participant, seed: int) -> State:
        """The first model as everybody's mean, and which of its names are statistics and have no mask."""
        names = _names(template, self.config)
        statistics = _spell(sorted(running_statistics(template) & names))
        return State.of(template, names).within("w") | {"statistics": statistics}

    def welcome(self, state: State) -> State:
        """A new site gets everybody's mean."""
        return state.under("w").within("w")

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """Everybody's mean and, for a site that has yet to merge the round it was last counted in, its u."""
        own, circle = f"{client}@{task.since}", _read(state.get(f"circle.{client}"))
        if own not in circle:
            return self.welcome(state)
        shared = state.under("w")
        total = Sum()
        for key in circle:
            total.add(self._terms(state.kept[key].load()))
        critical = total.mean(otherwise=shared)
        if self.config.merge_at == "client":
            return shared.within("w") | critical.within("u")
        parameters = shared.only(shared.keys() - set(_read(state["statistics"])))
        masks = overlap.unpack(state.kept[own].load()["mask"], parameters)
        return _merge(self.config, masks, critical, shared=shared).within("merged")

    def close(self, state: State, arrivals: Arrivals, task: Task) -> State:
        """A new mean and new circles among the counted sites; the other sites' circles stay as they were."""
        return self.close_telling(state, arrivals, task)[0]

    def close_telling(self, state: State, arrivals: Arrivals, task: Task) -> tuple[State, Metrics]:
        """The same, with how alike the sites' masks are and how many others each has in its circle."""
        sites = sorted(arrivals.shown)
        if not sites:
            return state, {}
        total, masks = Sum(), []
        for site in sites:
            update = arrivals.shown[site].load()
            total.add(self._terms(update))
            masks.append(update["mask"].clone())
        mean = total.mean(otherwise=state.under("w")).within("w")
        table = overlap.overlaps(masks, self.config.overlap_norm)
        rows = overlap.circles(table, self.config.collab, number=task.round, beta=self.config.beta)
        circles = _circles(sites, rows, task.round)
        arrived = {f"{site}@{task.round}": kept for site, kept in arrivals.shown.items()}
        closed = _prune(State({**state, **mean, **circles}, kept=state.kept | arrived))
        told = _spread("circle", [len(others) for others in rows])
        told |= _spread("critical", _marked_shares(state, masks))
        return closed, told | self._tell_overlap(table, task.round)

    def _tell_overlap(self, table: Tensor, number: int) -> Metrics:
        """O_avg, O_max and what an overlap has to reach, as long as any can."""
        if len(table) < 2:
            return {}
        average, highest = overlap.spread(table)
        told = {"overlap/mean": average, "overlap/most": highest}
        if self.config.collab == "time_varying" and number <= self.config.beta:
            told["overlap/threshold"] = overlap.threshold(table, number, self.config.beta)
        return told

    def _terms(self, update: State) -> dict[str, Weighted]:
        weight = update["samples"] if self.config.aggregation == "samples" else torch.tensor(1)
        return {name: Weighted(value, weight) for name, value in update.under("w").items()}


def _names(module: nn.Module, config: Config) -> set[str]:
    """What is sent of a model; integer counters never are."""
    return floating(module) - (running_statistics(module) if config.bn_stats == "local" else set())


def _merge(
    config: Config, masks: Mapping[str, Tensor], critical: Mapping[str, Tensor], *, shared: State
) -> State:
    """Critical values where the mask says so, shared ones elsewhere (Eq. 11); without a mask: critical."""
    masked = masks if config.noncritical == "all" else {}
    mixed = {name: torch.where(masked[name], critical[name], shared[name]) for name in masked}
    return State({**critical, **mixed})


def _circles(sites: list[ClientId], rows: list[list[int]], number: int) -> dict[str, Tensor]:
    """For each site the keys of the updates its u is the mean of, its own among them, in site order."""
    return {
        f"circle.{sites[own]}": _spell(f"{sites[place]}@{number}" for place in sorted([own, *others]))
        for own, others in enumerate(rows)
    }


def _spread(name: str, values: Sequence[float]) -> Metrics:
    """What differs by site, told without saying whose it is."""
    return {f"{name}/mean": fmean(values), f"{name}/least": min(values), f"{name}/most": max(values)}


def _marked_shares(state: State, masks: Sequence[Tensor]) -> list[float]:
    """How much of the parameters each mask marks; whatever pads its last byte is 0."""
    names = {name for name in state if name.startswith("w.")}
    statistics = {f"w.{name}" for name in _read(state["statistics"])}
    parameters = sum(state[name].numel() for name in names - statistics)
    return [int(np.bitwise_count(mask.cpu().numpy()).sum(dtype=np.int64)) / parameters for mask in masks]


def _spell(words: Iterable[str]) -> Tensor:
    """A list of names as bytes, because all that a State can hold is tensors."""
    return torch.tensor(list(" ".join(words).encode()), dtype=torch.uint8)


def _read(spelt: Tensor | None) -> list[str]:
    return [] if spelt is None else bytes(spelt.tolist()).decode().split()


def _prune(state: State) -> State:
    """Let go of the updates that no site's circle needs any more."""
    needed = {key for name, circle in state.items() if name.startswith("circle.") for key in _read(circle)}
    return State(state, kept={key: kept for key, kept in state.kept.items() if key in needed})


_log = logging.getLogger(__name__)
PER_CLIENT = True
DIAGNOSTICS = {
    "loss": "Cross entropy in the last epoch of a site's training.",
    "mask_density": "The share of a site's parameters that it marked as critical.",
    "mask_jaccard": "How much of a site's marks stayed since it trained before: 1 all, 0 none or its first round.",
    "circle": "How many others a site shares its critical entries with: the mean over the sites counted in a "
    "round, and from the fewest to the most. It falls as the threshold rises, until everybody is alone.",
    "critical": "The share of parameters marked as critical: the mean over counted sites, from least to most.",
    "overlap": "How alike two sites' marks are, 1 for equal ones: the mean and the most over all pairs of counted "
    "sites, and the threshold a pair has to reach to share.",
}
"""What is told by `learn` and of a round, each number or family of numbers in a sentence."""
SHOWS = "it shows the server each client's whole model and its critical mask."
_PAPER: Mapping[str, JsonValue] = {"lr": 0.1, "momentum": 0.0, "batch": 100, "epochs": 5}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _PAPER,
    "repro": {**_PAPER, "momentum": 0.9, "bn_stats": "local"},
}
"""Settings under one name: the paper's optimiser, which names no momentum, or the authors' configurations."""
