"""FedCP: a small shared network splits each sample's features between a global head and the site's own.

Zhang et al., FedCP: Separating Feature Information for Personalized Federated Learning via Conditional Policy
(KDD 2023).
Rule: h = encoder(x). The conditional policy network (CPN) takes h ⊙ v/‖v‖, v the column sums of the personal
head's weights at the start of the round, and gives for each feature two numbers whose softmax is r and s = 1 − r
(Eq. 4). The prediction is head_g(r ⊙ h) + head_p(s ⊙ h). A round trains encoder, CPN and head_p for E epochs on
CE + λ MMD²(h, h'), h' from the encoder as received, which stands still (Eq. 8). head_g is as received, always.
Travels: encoder, CPN, and under the name of head_g the mean of head_g and head_p (Eq. 6). Stays: head_p, running
statistics. A site that registers after the run began takes head_g for its first head_p.
Departures from the paper: Eq. 7 prints the kernel itself for the discrepancy; its text and code mean MMD. v comes from
the head at hand when the site predicts, not from the last round, and from the first head in the first round.
Departures from the code: noise on the policy is off (`policy`), training samples are shuffled, those of the last batch
too are trained on (`drop_last`), test samples are all measured, head_g is not overwritten by what is sent, every site
gets all three modules, and head_p and head_g have first values of their own (there the same ones).
Costs: beside FedAvg 2K² more numbers to send (0.53 M for K = 512, 5 to 9 % of the paper's networks), a second encoder
in memory and a third more computing for its forward passes, and B²K numbers in memory for the discrepancy.
Choice: when sites differ in labels and samples of one site differ in how common they are. Not with a wide encoder (K of
some thousands), and not to hide the heads: the coordinator knows head_g and can tell head_p from the mean unless sums
are secure. It learns slowly at first, the more so the larger lr·λ.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pfl_common.app.config import Why, refuse_idle
from pfl_common.errors import SettingError
from pfl_common.learning import sgd
from pfl_common.learning.arithmetic import in_double
from pfl_common.learning.freezing import expect_frozen_alike
from pfl_common.learning.method import (
    STRICT,
    Averaging,
    LocalData,
    Metrics,
    Participant,
    Samples,
    Settings,
    probe,
)
from pfl_common.learning.mmd import mmd2
from pfl_common.learning.partition import has_batch_norm, travelling
from pfl_common.models import Backbone
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.update import Up, Weighted

LAMBDAS = {"cnn": 5.0}
"""λ by backbone (App. D); 1 for any other."""
SEEN = 512
"""Samples of a part that loss and policy are looked at on: enough for a curve, cheap beside the training."""


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """The symbols of the paper and the switches of its ablation tables."""

    lambda_: Annotated[float | None, Field(ge=0, le=10_000), Why("the paper's largest is 50")] = None
    """λ: weight of the discrepancy (Eq. 8). null: 5 for the backbone cnn and 1 for any other, as in App. D."""
    mmd_bandwidths: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1_000_000)], ...], Field(min_length=1, max_length=16)
    ] = (10.0, 15.0, 20.0, 50.0)
    """Variances of the kernels that the discrepancy adds up."""
    policy: Literal["softmax", "gumbel", "gumbel_train"] = "softmax"
    """The policy as in Eq. 4 (softmax), or with Gumbel noise on it: always (gumbel, the code's), or in training."""
    cpn_fc: Annotated[int, Field(ge=1, le=4), Why("the numbers of App. C")] = 1
    """Linear layers of the CPN; `cpn_act` stands between them."""
    cpn_norm: Literal["ln", "bn", "gn"] = "ln"
    """What follows the CPN's last linear layer: layer norm, batch norm, or group norm with a group for r and for s."""
    cpn_act: Literal["relu", "tanh", "sigmoid"] = "relu"
    """What follows the norm (App. C)."""
    cpn_input: Literal["cs_ss", "ss", "cs", "random"] = "cs_ss"
    """What the CPN takes (Table 1): both the site's v and the sample's h, only h (wo CS), only v (wo SS), or random
    numbers that all samples and sites share (wo CS & SS)."""
    use_cpn: bool = True
    """Without it both heads take all of h (wo CPN)."""
    use_gfm: bool = True
    """Without it λ counts as 0 (wo GFM)."""
    use_global_head: bool = True
    """Without it head_p predicts alone and the encoder alone travels (wo GH); needs use_cpn = false."""

    def __post_init__(self) -> None:
        """Refuse what the paper calls no variant, and what would have no effect."""
        if self.use_cpn and not self.use_global_head:
            raise SettingError(
                "use_global_head is false and use_cpn is true",
                expected="two heads for the policy to divide the features between",
                advice="set use_cpn=false too, or leave the global head",
            )
        if self.use_cpn and self.cpn_norm == "bn" and self.cpn_input in ("cs", "random"):
            raise SettingError(
                f"cpn_norm is bn and cpn_input is {self.cpn_input}",
                expected="an input that differs by sample: batch norm takes away what all samples share",
                advice="choose cpn_norm=ln or gn, or cpn_input=cs_ss or ss",
            )
        if not self.use_cpn:
            refuse_idle(self, "cpn_fc", "cpn_norm", "cpn_act", "cpn_input", beside="use_cpn = true")
        if not self.use_gfm:
            refuse_idle(self, "mmd_bandwidths", beside="use_gfm = true")

    def why_whole(self, lambda_: float) -> str:
        """Why a batch cannot be trained in halves, with this λ; empty if it can."""
        if lambda_:
            return "its discrepancy compares the samples of a batch"
        return "" if self.policy == "softmax" else "its policy draws noise for a batch as a whole"


class Client(Participant):
    """Divide the features between what all sites know and what this one knows."""

    heads = ("head_p", "head_g")
    settings: Config
    usual_weights = True
    head_p: nn.Module
    head_g: nn.Module
    probe: Tensor

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        usual = LAMBDAS.get(backbone.name, 1.0) if config.lambda_ is None else config.lambda_
        self._lambda = usual if config.use_gfm else 0.0
        self.whole_batch = config.why_whole(self._lambda)
        self.cpn = build_cpn(self.features, config)
        # Kept where it is used; elsewhere it would be one more thing in each vault.
        self.register_buffer("probe", torch.zeros(self.features), persistent=config.cpn_input == "random")
        if config.use_global_head:
            expect_frozen_alike(self, self.heads, why="what sites upload is their mean")
        else:
            del self.head_g
        self._chance: torch.Generator | None = None
        # The encoder as received; in a tuple, since a module in an attribute becomes a part of this one.
        self._received: tuple[nn.Module, ...] = ()

    def reset_parameters(self) -> None:
        """Draw, with the first model, the random input that all sites share."""
        self.probe.uniform_()

    def travels(self, phase: str) -> Iterable[str]:
        """What there is of encoder, CPN and global head."""
        return travelling(self, self.settings.bn_policy, ["encoder", "cpn", "head_g"])

    def receive(self, down: State, task: Task) -> None:
        """Load it; a site that came after the run began takes the global head for its first own one."""
        load_into(self, down)
        if task.late and task.is_first:
            load_into(self.head_p, down.under("head_g"))

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on encoder, CPN and personal head; the global head stands still."""
        # Of the round before, in a participant that lives on: it would be measured against here.
        self._received, self._shares = (), list[Tensor]()
        # A newcomer's batch norm has no running statistics yet: nothing to measure before.
        known = self.settings.diagnose and (not task.is_first or not has_batch_norm(self))
        told = self._assess(data, "before") if known else {}
        self._chance, self._v = data.generator(task, "gumbel"), self.column_sums()
        if self._lambda:
            self._received = (copy.deepcopy(self.encoder).requires_grad_(False).train(),)
        trained = [*self.encoder.parameters(), *self.head_p.parameters(), *self.cpn.parameters()]
        told["loss"] = sgd.train(self, trained, self._loss, data=data, task=task)
        if last := self._shares[-(len(self._shares) // self.settings.epochs) :]:
            told["pir/training"] = float(torch.cat(last).mean())
        return told

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """The personal head alone, and v with it. An encoder that stands still has no discrepancy with itself."""
        self._chance = data.generator(task, "gumbel")
        return super().adapt(data, task)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """F_i of one batch (Eq. 8), with v as it was when the round began."""
        h = self.encoder(x)
        r, s = self.split(h, self._v, self._draw(h))
        if self.settings.use_cpn:
            self._shares.append(s.detach().mean(dim=1))
        return cross_entropy(self._combine(h, r, s)["combined"], y) + self._pull(x, h)

    def _pull(self, x: Tensor, h: Tensor) -> Tensor:
        """λ MMD² of the features and those that the encoder as received gives."""
        if not self._received:
            return h.new_zeros(())
        return self._lambda * mmd2(h, self._received[0](x), self.settings.mmd_bandwidths)

    def report(self, data: LocalData, task: Task) -> Up:
        """What travels, with the mean of both heads in place of the global one (Eq. 6)."""
        summed = dict(super().report(data, task).summed)
        for name, own in State.view(self.head_p).within("head_g").items():
            if term := summed.get(name):
                summed[name] = Weighted((term.value + own) / 2, term.weight)
        return Up(summed=summed)

    def forward(self, x: Tensor) -> Tensor:
        """Both heads added, each on its part of the features."""
        return self.views(x)["combined"]

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """The prediction, and what each head adds to it."""
        h = self.encoder(x)
        return self._combine(h, *self.split(h, self.column_sums(), self._draw(h)))

    def _combine(self, h: Tensor, r: Tensor, s: Tensor) -> dict[str, Tensor]:
        own: Tensor = self.head_p(s * h)
        if not self.settings.use_global_head:
            return {"combined": own}
        of_all: Tensor = self.head_g(r * h)
        return {"combined": of_all + own, "global": of_all, "personal": own}

    def split(self, h: Tensor, v: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """r and s for each sample and feature (Eq. 4); 1 and 1 without a policy."""
        if not self.settings.use_cpn:
            return h.new_ones(()), h.new_ones(())
        inputs = {"cs_ss": v * h, "ss": h, "cs": v.expand_as(h), "random": self.probe.expand_as(h)}
        rows: Tensor = torch.stack(self.cpn(inputs[self.settings.cpn_input]).chunk(2, dim=1))
        r, s = (rows if noise is None else rows + noise).softmax(dim=0)
        return r, s

    def _draw(self, h: Tensor) -> Tensor | None:
        """Gumbel noise on r and s for each sample and feature, if the policy has it now."""
        if self.settings.policy not in ("gumbel", "gumbel_train" if self.training else "gumbel"):
            return None
        # A prediction has no task to name its chance by: like dropout it takes torch's, which each task seeds.
        chance = self._chance if self.training else None
        uniform = torch.rand(2, *h.shape, generator=chance, dtype=torch.float64).clamp(min=1e-10)
        return -torch.log(-torch.log(uniform)).to(h.dtype).to(h.device)

    @torch.no_grad()
    def column_sums(self) -> Tensor:
        """v/‖v‖, v the column sums of the personal head's weights, multiplied if it has several layers."""
        weights = [layer.weight for layer in self.head_p.modules() if isinstance(layer, nn.Linear)]
        v = weights.pop().sum(dim=0)
        while weights:
            v = v @ weights.pop()
        return normalize(v, dim=0, eps=1e-12)

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """Loss, accuracy and policy after training."""
        return self._assess(data, "after")

    @torch.no_grad()
    def _assess(self, data: LocalData, when: str) -> Metrics:
        """F_i on training samples, accuracy and policy on test samples; in evaluation mode and without noise."""
        for module in (self, *self._received):
            module.eval()
        told, losses = {}, list[Tensor]()
        for x, y, h, _, scores in self._look_at(data.train):
            losses.append((cross_entropy(scores, y) + self._pull(x, h)) * len(y))
        told[f"objective/{when}"] = float(torch.stack(losses).sum()) / len(probe(data.train, SEEN))
        if len(data.test):
            looks = self._look_at(data.test)
            seen = [(o.argmax(dim=1) == y, s.mean(dim=1)) for _, y, _, s, o in looks]
            right, shares = (torch.cat(values) for values in zip(*seen, strict=True))
            told[f"accuracy/{when}"] = float(in_double(right).mean())
            if when == "after" and self.settings.use_cpn:
                told["pir/test"] = float(shares.mean())
                told |= {f"share/p{part}": float(shares.quantile(part / 100)) for part in (10, 50, 90)}
        return told

    def _look_at(self, samples: Samples) -> Iterator[tuple[Tensor, ...]]:
        """Batches of some samples, the same ones each time, with their features, s and scores."""
        for x, y in probe(samples, SEEN).batches(self.settings.batch):
            h = self.encoder(x)
            r, s = self.split(h, self.column_sums())
            yield x, y, h, s.expand_as(h), self._combine(h, r, s)["combined"]


def build_cpn(features: int, config: Config) -> nn.Sequential:
    """K numbers in, 2K out: the first half decides on r, the second on s. Empty if there is no policy."""
    if not config.use_cpn:
        return nn.Sequential()
    bend = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[config.cpn_act]
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(1, config.cpn_fc):
        layers |= {f"before{number}": nn.Linear(features, features), f"bend{number}": bend()}
    norms: dict[str, Callable[[int], nn.Module]]
    norms = {"ln": nn.LayerNorm, "bn": nn.BatchNorm1d, "gn": partial(nn.GroupNorm, 2)}
    layers |= {"fc": nn.Linear(features, 2 * features), "norm": norms[config.cpn_norm](2 * features)}
    return nn.Sequential(layers | {"bend": bend()})


Server = Averaging
DIAGNOSTICS = {
    "views": "combined adds both heads and is what the method predicts with; global is what the head that all sites "
    "share adds, personal what the site's own adds.",
    "loss": "What training minimises, in its last epoch: cross entropy and λ times the discrepancy.",
    "pir": "The part of the features that goes to the personal head (PIR: the mean of s): on training samples in the "
    "last epoch, and on test samples after training. 0.5 prefers neither head.",
    "share": "The same part for single test samples after training: the middle one, and the two that a tenth of the "
    "samples lie below and above.",
    "objective": "What training minimises, on training samples before and after it, without the policy's noise. Where "
    "the two meet, local training gains nothing any more.",
    "accuracy": "On test samples, before and after local training, without the policy's noise.",
}
"""What is told by `learn` and `diagnose`, each number or family of numbers in a sentence; and who predicts."""
NEWCOMER = (
    "Its personal head begins as the global one and trains ten times E epochs; encoder, policy network and global "
    "head are taken as they are."
)
SHOWS = ""
_PAPER: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1}
_FASTER: Mapping[str, JsonValue] = {**_PAPER, "lr": 0.1, "lambda": 1.0}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _PAPER,
    "cnn": {**_PAPER, "lambda": 5.0},
    "resnet18": _FASTER,
    "fasttext": _FASTER,
    "repro": {**_PAPER, "policy": "gumbel", "drop_last": True},
}
"""Settings under one name: the paper's for its 4-layer CNN (App. D) and for each of its networks, or the authors' code
with the CNN's rate (with ResNet-18 or fastText set lr=0.1 beside it). λ follows the backbone where it is not named.
"""
