"""FedProto: sites share what a class looks like on average, and no model at all.

Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients (AAAI 2022).
Rule: a site trains its own model on L = CE + lambda * MSE(h, P_y), where P_y is the common prototype of the
sample's class, then reports its own mean feature of each class. The next P_c is the mean over the sites that
have class c; a class that none has keeps its prototype. A sample goes to the nearest prototype (Euclidean).
Before the first aggregation, and whenever no class can be chosen by its prototype, the head predicts.
Travels: `prototypes` (C x K), `known` (classes that have one). Stays: the whole model, `owned` (its classes).
Departures from the codes: they average features as they occur in training; the default is a clean pass afterwards
(`proto_pass`). `running` takes all epochs, as the library that most comparisons used; the authors take the last.
The authors choose among the site's own classes (`proto_classes = own`). From the paper: it weights by samples, both
codes count every site once (`proto_weight`). In the library a class that no counted site has loses its prototype.
Costs: C * K numbers in place of a model, for most networks a few percent; one more pass over the training data.
Choice: when a model is too large to send, may not be sent, or differs from site to site in all but its features' width.
Not for a new site that has to predict before it has trained: its encoder has learnt from nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from pfl_common.app.config import Why
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.arithmetic import in_double
from pfl_common.learning.method import (
    STRICT,
    Arrivals,
    Averaging,
    Closed,
    LocalData,
    Metrics,
    Participant,
    Settings,
)
from pfl_common.models import Backbone
from pfl_common.spec.run import ClientId, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Quantity, Up, Weighted


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """FedProto's symbol and the choices its papers and codes leave."""

    lambda_: Annotated[float, Field(ge=0, le=10_000), Why("less than 0 pushes away; the paper's is 1")] = 1.0
    """lambda: strength of the pull towards the prototypes."""
    proto_pass: Literal["clean", "running"] = "clean"
    """Average features in one pass after training (clean) or as they occur in training (running)."""
    proto_weight: Literal["uniform", "count"] = "uniform"
    """Whether a site counts once for each class it has, or by its number of samples of that class."""
    proto_classes: Literal["all", "own"] = "all"
    """Choose among all classes that have a prototype, or only among those the site has itself."""
    aggregation: Literal["samples"] = "samples"
    """Has no effect here: `proto_weight` says how sites count."""
    bn_policy: Literal["local_stats"] = "local_stats"
    """Has no effect here: no model travels, every batch norm stays at its site."""


class Client(Participant):
    """A model of one's own, pulled towards prototypes that all sites share."""

    settings: Config
    prototypes: Tensor
    known: Tensor
    owned: Tensor
    whole_batch = ""
    beside: ClassVar[Mapping[str, Quantity]] = {"known": "mask"}
    """Whether there is a prototype of a class."""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self.register_buffer("prototypes", torch.zeros(classes, self.features))
        self.register_buffer("known", torch.zeros(classes))
        self.register_buffer("owned", torch.zeros(classes))
        self._forget()

    def travels(self, phase: str) -> Iterable[str]:
        """Prototypes, and which classes have one."""
        return ("prototypes", "known")

    def tells(self, phase: str) -> Iterable[str]:
        """Weights of prototypes tell which classes the site has."""
        return ("owned",)

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on cross entropy plus lambda times the distance to the prototypes."""
        self._forget()
        self._note_classes(data)
        loss = sgd.train(self, self.parameters(), self._loss, data=data, task=task)
        if self.settings.proto_pass == "clean":
            self._pass_over(data)
        return {"loss": loss} | self._tell_distance()

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """A model of its own, by the same loss: the prototypes pull as they came."""
        self._forget()
        self._note_classes(data)
        return newcomer.fit(self, self._loss, data=data, task=task)

    def _tell_distance(self) -> Metrics:
        """How far this site's features lie from the prototypes; nothing before there are any for its classes."""
        met = int(self._seen[self._has_prototype()].sum())
        return {"distance": float(self._strayed) / met} if met else {}

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        features = self.encoder(x)
        if self.settings.proto_pass == "running":
            self._count_in(features, y)
        pull = mse_loss(features, self._targets(features, y))
        return cross_entropy(self._by_head(features), y) + self.settings.lambda_ * pull

    def _targets(self, features: Tensor, y: Tensor) -> Tensor:
        """A sample whose class has no prototype is its own target: it adds nothing but counts."""
        return torch.where(self._has_prototype()[y].unsqueeze(1), self.prototypes[y], features.detach())

    @torch.no_grad()
    def _pass_over(self, data: LocalData) -> None:
        self.eval()
        for x, y in data.train.batches(self.settings.batch):
            self._count_in(self.encoder(x), y)
            self.progress(0)

    def _forget(self) -> None:
        device = self.prototypes.device
        self._sums = in_double(torch.zeros(self.classes, self.features, device=device))
        self._seen = torch.zeros(self.classes, dtype=torch.int64, device=device)
        self._strayed = in_double(torch.zeros((), device=device))

    def _count_in(self, features: Tensor, y: Tensor) -> None:
        self._sums.index_add_(0, y.to(self._sums.device), in_double(features.detach()))
        self._seen += torch.bincount(y, minlength=self.classes)
        targets = self._targets(features, y)
        strayed = torch.linalg.vector_norm((features - targets).detach(), dim=1).sum()
        self._strayed += strayed.to(self._strayed.device)

    def report(self, data: LocalData, task: Task) -> Up:
        """The mean feature of each class, which counts 0 where the site has no sample of it."""
        seen = self._seen.to(self._sums.device)
        means = (self._sums / seen.clamp(min=1).unsqueeze(1)).to(self.prototypes.dtype)
        present = (self._seen > 0).long()
        weight = (
            present * data.counts.to(present.device) if self.settings.proto_weight == "count" else present
        )
        known = present.to(self.known.dtype)
        return Up(summed={"prototypes": Weighted(means, weight), "known": Weighted(known, weight)})

    def weighs(self, phase: str) -> Quantity:
        """For each class its samples, or 1 where there are any."""
        return "count" if self.settings.proto_weight == "count" else "mask"

    def personalise(self, data: LocalData, task: Task) -> None:
        """A site that never trained still has to know its own classes."""
        self._note_classes(data)

    def _note_classes(self, data: LocalData) -> None:
        self.owned.copy_(data.counts > 0)

    def forward(self, x: Tensor) -> Tensor:
        """Minus the distance to each prototype; classes that cannot be chosen get minus infinity."""
        features, choice = self.encoder(x), self._has_prototype()
        if self.settings.proto_classes == "own":
            choice &= self.owned > 0
        # The faster way, through a matrix product, loses digits where a prototype is very near.
        distances = torch.cdist(features, self.prototypes, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = torch.where(choice, -distances, -torch.inf)
        # Chosen by a value and not by an `if`, so that the whole can be exported as one graph.
        return torch.where(choice.any(), nearest, self._by_head(features))

    def _has_prototype(self) -> Tensor:
        # A one that went through a masked sum may come back a little off.
        return self.known > 0.5

    def _by_head(self, features: Tensor) -> Tensor:
        scores: Tensor = self.get_submodule("head")(features)
        return scores

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """The prediction by prototypes, and that of the site's own head."""
        return {"combined": self(x), "head": self._by_head(self.encoder(x))}


class Server(Averaging):
    """Keep the mean of each class's features, and tell how the prototypes lie."""

    def compared(self, state: State, client: ClientId) -> State:
        """Nothing: a class's first prototype goes as far as a feature is long, and so may each later one."""
        return State({"sum.prototypes": torch.zeros_like(state["prototypes"])})

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """The next prototypes. Told: how many there are, how far they went and how far apart they are."""
        closed = super().close(state, arrivals, task).state
        before, after = state["known"] > 0.5, closed["known"] > 0.5
        now = closed["prototypes"][after].double()
        told = {"classes": float(after.sum())}
        if (both := before & after).any():
            way = closed["prototypes"][both].double() - state["prototypes"][both].double()
            told["prototypes/moved"] = float(torch.linalg.vector_norm(way, dim=1).mean())
        if len(now) > 1:
            distances = torch.cdist(now, now, compute_mode="donot_use_mm_for_euclid_dist")
            told["prototypes/apart"] = float(distances.fill_diagonal_(torch.inf).amin(dim=1).mean())
        return Closed(closed, told)


def no_robust(config: Config) -> str:
    """A site without a class sends zeros of weight 0 in its place, which a rule that counts all alike would take for a
    prototype.
    """
    return "a site sends prototypes of its own classes alone: the rules need all numbers of all sites"


def no_encoding(config: Config) -> str:
    """Prototypes are no changes of what came, and small."""
    return "prototypes are means of the sites' features, no changes of what they were sent, and small as they are"


DIAGNOSTICS = {
    "views": "combined takes the nearest prototype and is what the method predicts with; head is the site's own.",
    "loss": "Cross entropy and the pull towards the prototypes, in the last epoch of a site's training.",
    "distance": "From a site's features to the prototypes they were drawn to, in the mean over its samples of "
    "classes that had one.",
    "classes": "Classes that have a prototype.",
    "prototypes": "How far a class's prototype went in the round, and how far from it the nearest other one lies: "
    "means over the classes. They have settled when the first is small against the second.",
}
"""What is told by `learn` and of a round, each number or family of numbers in a sentence; and who predicts."""
NEWCOMER = (
    "Its whole model begins with the run's first values, since none travels, and trains ten times E epochs with the "
    "pull towards the prototypes; these are taken as they are."
)
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1}
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1, "drop_last": True}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "repro": {**_FEDCP, "proto_pass": "running"},
}
"""Settings under one name, each the optimiser of a paper that compares with FedProto: DualFed (`paper`), GPFL (named
as FedCP's, which has the same) for its 4-layer CNN and for ResNet-18 or fastText. `repro` averages features as they
occur in training, as the library of that comparison does; its lambda is not printed, 1 is the authors'.
"""
