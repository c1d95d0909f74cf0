"""GPFL: one small module shows the features to shared class embeddings and, tuned to the site, to the site's own head.

Zhang et al., GPFL: Simultaneously Learning Global and Personalized Feature Information for Personalized Federated
Learning (ICCV 2023).
Rule: f = encoder(x). The conditional valve (CoV) makes of a vector c a scale γ(c) and a shift β(c): its route is
ReLU((γ(c) + 1) ⊙ f + β(c)). With c = g, the mean of the received class embeddings, it is f^G, with c = p_i, their mean
weighted by the site's share of each class, f^P (Eq. 3-7). A round trains encoder, CoV, embeddings C and head_p for E
epochs on CE(head_p(f^P)) + CE(cos(f^G, C)) + λ ‖f^G − Ĉ_y‖ + μ ‖CoV‖ + μ ‖C‖ (Eq. 8-11), where g, p_i and Ĉ, the
embeddings as received, stand still. The prediction is head_p(f^P).
Travels: encoder, CoV and class embeddings. Stays: head_p, p_i, running statistics; the class shares never leave.
Departures from the paper: Eq. 9 prints a comma for the minus, the sentence after Eq. 4 swaps g and p_i. The cosines
have no temperature, as printed: their cross entropy never falls below log(1 + (C − 1) / e²).
Departures from the code, each an option: p_i divided by the number of classes (`p_norm`), g and p_i from the
embeddings just received (`cond_source`), a mean over samples (`mlg`), norms instead of weight decay (`reg`). The
published λ and μ belong to the code's choices: preset `repro`. With stale conditions, a site that missed rounds has
the embeddings it trained last. Class shares are counted over all training samples, also those drop_last leaves out.
Costs: beside FedAvg 2K² more numbers to send (0.53 M for K = 512, 5 to 9 % of the paper's networks; the embeddings take
the place of a head of one layer), and next to no memory or computing.
Choice: when sites have few classes each of many, and the shared features should still know all. Not for two or three
classes, where the embeddings add little, and not without tuning λ, μ and the rate: it wants small steps (the paper's
0.005 for its CNN), and at the rate that is usual here its features can die.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pfl_common.app.config import Why
from pfl_common.learning import sgd
from pfl_common.learning.arithmetic import in_float32
from pfl_common.learning.joint_norm import joint_norm
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.partition import travelling
from pfl_common.models import Backbone
from pfl_common.spec.run import Task

USUAL = {"resnet18": (1e-4, 0.0), "fasttext": (1e-4, 0.0), "har_cnn": (0.01, 1.0)}
"""λ and μ by backbone, from the authors' run script; 0.01 and 0.1 for any other."""


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """The symbols of the paper, where its code differs, and the variants of Table 6."""

    lambda_: Annotated[float | None, Field(ge=0, le=10_000), Why("the paper's largest is 0.01")] = None
    """λ: weight of the distance to the class's embedding (Eq. 11). null: 0.0001 for the backbones resnet18 and
    fasttext, 0.01 for any other."""
    mu: Annotated[float | None, Field(ge=0, le=1000), Why("the paper's largest is 1")] = None
    """μ: weight of the penalty on CoV and embeddings (Eq. 11). null: 0 for resnet18 and fasttext, 1 for har_cnn, 0.1
    for any other."""
    p_norm: Literal["paper", "sum"] = "paper"
    """p_i: divided by the number of classes as in Eq. 7 (paper), or not (sum, the code's)."""
    cond_source: Literal["received", "stale"] = "received"
    """Make g and p_i from the embeddings just received, or from those the site itself had trained last (the code's)."""
    mlg: Literal["per_sample", "batch_frob"] = "per_sample"
    """Mean distance over the samples of a batch (Eq. 9), or one norm of the whole batch (the code's)."""
    reg: Literal["norm", "weight_decay"] = "norm"
    """The penalty: μ times the norms (Eq. 11), or weight decay μ in SGD, on top of `weight_decay` (the code's)."""
    ablation: Literal["none", "wo_pci", "wo_cov", "wo_mlg", "wo_gce", "wo_cov_gce"] = "none"
    """Table 6: constant random conditions that all sites share (wo_pci), both routes plain f (wo_cov), λ = 0 (wo_mlg),
    no embeddings, only head_p's loss and a constant condition (wo_gce), FedPer (wo_cov_gce)."""


class Client(Participant):
    """Train what all classes look like and, on another route through the same module, a head of one's own."""

    heads = ("head_p",)
    settings: Config
    head_p: nn.Module
    gce: nn.Module
    cov: nn.Module
    condition: Tensor
    constants: Tensor
    table: Tensor

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        variant, usual = config.ablation, USUAL.get(backbone.name, (0.01, 0.1))
        self._lambda = usual[0] if config.lambda_ is None else config.lambda_
        self._mu = usual[1] if config.mu is None else config.mu
        self._embeds = variant not in ("wo_gce", "wo_cov_gce")
        self._fixed = variant in ("wo_pci", "wo_gce")
        self.whole_batch = "its distance is one root for a batch" if config.mlg == "batch_frob" else ""
        modulates = variant not in ("wo_cov", "wo_cov_gce")
        self.gce = nn.Embedding(classes, self.features) if self._embeds else nn.Identity()
        self.cov = Valve(self.features) if modulates else Plain()
        self._remember("condition", (self.features,), needed=modulates)
        self._remember("constants", (2, self.features), needed=self._fixed)
        stale = config.cond_source == "stale" and variant in ("none", "wo_mlg")
        self._remember("table", (classes, self.features), needed=stale)

    def _remember(self, name: str, shape: tuple[int, ...], *, needed: bool) -> None:
        """Add a buffer; the vault keeps it where the variant needs it."""
        self.register_buffer(name, torch.zeros(shape), persistent=needed)

    def reset_parameters(self) -> None:
        """Draw, with the first model, the constant conditions that all sites share."""
        self.constants.normal_()

    def travels(self, phase: str) -> Iterable[str]:
        """What there is of encoder, CoV and embeddings."""
        return travelling(self, self.settings.bn_policy, ["encoder", "cov", "gce"])

    def personalise(self, data: LocalData, task: Task) -> None:
        """g and p_i (Eq. 5-7), with the class shares of the whole training set."""
        if self._fixed:
            self._g, condition = self.constants
        elif self._embeds:
            table = self.table if self.settings.cond_source == "stale" else self._embeddings().detach()
            shares = (data.counts / data.counts.sum()).to(table)
            self._g, condition = table.mean(dim=0), shares @ table
            if self.settings.p_norm == "paper":
                condition = condition / self.classes
        else:
            return
        self.condition.copy_(condition)

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on all modules at once; conditions and received embeddings stand still."""
        self.personalise(data, task)
        decay = self.settings.weight_decay
        if self._embeds:
            self._received = self._embeddings().detach().clone()
            decay += self._mu if self.settings.reg == "weight_decay" else 0.0
        self._parts: list[Tensor] = []
        own = [*self.encoder.parameters(), *self.head_p.parameters()]
        shared = [*self.cov.parameters(), *self.gce.parameters()]
        groups: list[dict[str, object]] = [{"params": own}, {"params": shared, "weight_decay": decay}]
        told = {"loss": sgd.train(self, groups, self._loss, data=data, task=task)}
        if self._embeds:
            self.table.copy_(self._embeddings().detach())
        return told | self._tell_parts()

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """The personal head on L_P, with the site's own condition; all else stands still."""
        if self._embeds:
            self.table.copy_(self._embeddings().detach())
        self.personalise(data, task)
        return super().adapt(data, task)

    def _tell_parts(self) -> Metrics:
        """The means of the last epoch."""
        last = self._parts[-(len(self._parts) // self.settings.epochs) :]
        if not last:
            return {}
        *sums, samples = torch.stack(last).sum(dim=0).tolist()
        names = ("parts/personal", "parts/angle", "parts/magnitude")
        return {name: value / samples for name, value in zip(names, sums, strict=False)}

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """L of one batch (Eq. 11); without embeddings L_P alone."""
        f = self.encoder(x)
        parts = [cross_entropy(self.head_p(self.cov(f, self.condition)), y)]
        loss = parts[0]
        if self._embeds:
            common = self.cov(f, self._g)
            parts += [self._angle(common, y), self._distance(common, y)]
            weight = 0.0 if self.settings.ablation == "wo_mlg" else self._lambda
            loss = parts[0] + parts[1] + weight * parts[2] + self._penalty()
        self._parts.append(torch.stack([*parts, torch.ones_like(loss)]).detach() * len(y))
        return loss

    @in_float32
    def _angle(self, common: Tensor, y: Tensor) -> Tensor:
        """L_alg: cross entropy of the cosines with all classes' embeddings (Eq. 8)."""
        rows = normalize(self._embeddings(), dim=1, eps=1e-12)
        return cross_entropy(normalize(common, dim=1, eps=1e-12) @ rows.T, y)

    @in_float32
    def _distance(self, common: Tensor, y: Tensor) -> Tensor:
        """L_mlg: how far the common route ends from the class's embedding as received (Eq. 9)."""
        squares = (common - self._received[y]).square()
        # A root has no gradient at 0.
        if self.settings.mlg == "batch_frob":
            return (squares.sum() + 1e-12).sqrt()
        return (squares.sum(dim=1) + 1e-12).sqrt().mean()

    def _penalty(self) -> Tensor | float:
        """μ‖CoV‖ + μ‖C‖, each one norm of all the module's numbers."""
        if self.settings.reg != "norm":
            return 0.0
        modules = [list(module.parameters()) for module in (self.cov, self.gce)]
        return self._mu * torch.stack([joint_norm(values) for values in modules if values]).sum()

    def _embeddings(self) -> Tensor:
        return self.gce.get_parameter("weight")

    def forward(self, x: Tensor) -> Tensor:
        """The personal route."""
        scores: Tensor = self.head_p(self.cov(self.encoder(x), self.condition))
        return scores


class Valve(nn.Module):
    """CoV: scales and shifts features as a condition says (Eq. 3, 4)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gamma, self.beta = build_net(features), build_net(features)

    def forward(self, f: Tensor, condition: Tensor) -> Tensor:
        """ReLU((γ + 1) ⊙ f + β), with one γ and β for all samples."""
        return torch.relu((self.gamma(condition) + 1) * f + self.beta(condition))


class Plain(nn.Module):
    """No CoV: the features as they are."""

    def forward(self, f: Tensor, condition: Tensor) -> Tensor:
        """The features."""
        return f


def build_net(features: int) -> nn.Sequential:
    """One of CoV's two networks; unlike FedCP's, its norm comes last."""
    layers = {"fc": nn.Linear(features, features), "bend": nn.ReLU(), "norm": nn.LayerNorm(features)}
    return nn.Sequential(OrderedDict(layers))


Server = Averaging
DIAGNOSTICS = {
    "loss": "What training minimises, in its last epoch: the parts, weighted, and the penalty if it is one of norms.",
    "parts": "Parts of the loss in the last epoch. personal: cross entropy of the site's own head (L_P). angle: cross "
    "entropy of the cosines with the class embeddings (L_alg; it cannot fall below log(1 + (C − 1)/e²) with "
    "C classes). magnitude: distance to the received embedding of the class (L_mlg, before λ).",
}
"""What is told by `learn`, each number or family of numbers in a sentence."""
NEWCOMER = (
    "Its condition p_i follows from its own class shares and its head trains ten times E epochs; encoder, CoV and "
    "class embeddings are taken as they are."
)
SHOWS = ""
_PAPER: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1}
_SMALL: Mapping[str, JsonValue] = {**_PAPER, "lambda": 0.01, "mu": 0.1}
_LARGE: Mapping[str, JsonValue] = {**_PAPER, "lr": 0.1, "lambda": 0.0001, "mu": 0.0}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _PAPER,
    "cnn": _SMALL,
    "mlp": _SMALL,
    "resnet18": _LARGE,
    "fasttext": _LARGE,
    "har": {**_PAPER, "lr": 0.01, "lambda": 0.01, "mu": 1.0},
    "repro": {
        **_PAPER,
        "p_norm": "sum",
        "cond_source": "stale",
        "mlg": "batch_frob",
        "reg": "weight_decay",
        "drop_last": True,
    },
}
"""Settings under one name: the paper's rate for its 4-layer CNN; each network's rate with the λ and μ of the authors'
run script; or the authors' code with the CNN's rate (set lr=0.1 beside it for resnet18 and fasttext, 0.01 for har_cnn).
λ and μ follow the backbone where they are not named; the published ones were found with the choices of `repro`.
"""
