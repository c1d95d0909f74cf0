"""DualFed: share what comes before a personal projector, keep what comes after it.

Zhu et al., DualFed: Enjoying both Generalization and Personalization in Federated Learning via Hierachical
Representations (ACM Multimedia 2024).
Rule: z = encoder(x), u = projector(z). Stage 1 trains encoder, projector and head_p for E epochs on
CE(head_p(u), y) + λ L_con(u, y) (Eq. 6-8). Stage 2 trains head_g alone for E more on CE(head_g(z), y) with z
held fixed (Eq. 9, 10). The next encoder and head_g are the plain mean over sites (Eq. 11). The prediction
adds both heads (Eq. 5).
Travels: encoder and head_g, without running statistics. Stays: projector, head_p, running statistics.
Departures from the paper: Eq. 6 and 9 are cross entropies (sign and 1/n are missing in print). In Eq. 7 an
anchor is not its own positive, and the sums run over the batch. head_g takes z as in Eq. 3, although one
sentence of Sec. 4.1 says u. In stage 2 the network stays in train mode, so that running statistics move: the
authors' code does so, the paper does not say (`stage2_bn = eval` is the other reading). λ = 1 and B = 32 are
milder than the paper's, which are presets.
Departures from the code: |P(a)| without its 1e-6; integer counters and personal modules never travel.
Costs: 2 % fewer bytes than FedAvg with the same projector, as many as FedAvg without. A site trains a projector and a
second head (0.27 million numbers for K = 512), and passes over its data twice for each epoch.
Choice: when sites see the same classes otherwise (styles, scanners) and both a shared and a personal view of a sample
are of use. With few samples of a class in a batch the contrast says little: take larger batches, or λ near 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why, refuse_idle
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.measures import separate_classes
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings, probe
from pfl_common.learning.partition import travelling
from pfl_common.learning.supcon import supervised_contrast
from pfl_common.models import Backbone, ProjectorShape, build_projector
from pfl_common.spec.run import Task

MODULES = ("encoder", "projector", "head_p", "head_g")
SEEN_AT_ONCE = 256
"""Samples in one pass without gradients."""


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """The symbols of the paper and the switches of its ablation tables."""

    aggregation: Literal["samples", "uniform"] = "uniform"
    """Whether a site counts by its number of training samples, or every site alike (Eq. 11)."""
    lambda_: Annotated[float, Field(ge=0, le=10_000), Why("the paper's largest is 40")] = 1.0
    """λ: weight of the contrastive loss (Eq. 8); 0 leaves the cross entropy alone."""
    tau: Annotated[
        float, Field(ge=0.001, le=100), Why("it divides cosines; the paper's are 0.05 and 0.2")
    ] = 0.2
    """τ: temperature of the contrastive loss (Eq. 7)."""
    train_mode: Literal["stagewise", "simultaneous"] = "stagewise"
    """Two stages of E epochs each, or E epochs of all modules on the sum of all losses (Table 4)."""
    stage2_bn: Literal["train", "eval"] = "train"
    """Whether batch-norm layers use and follow the batch while the global head learns, or stand still."""
    ensemble: Literal["prob", "logit"] = "prob"
    """Add the heads' probabilities (Eq. 5) or their logits (the authors' code)."""
    proj_depth: Annotated[int, Field(ge=1, le=3), Why("the depths of Table 5")] = 2
    """D: linear layers of the projector (Table 5)."""
    proj_hidden: Annotated[int, Field(ge=1, le=16_384), Why("the paper's are 64 to 512")] = 256
    """H: width between them; without effect at depth 1."""
    proj_bn: bool = True
    """Whether batch normalisation follows each linear layer of the projector."""
    gclf_position: Literal["pre", "post_P", "post_G"] = "pre"
    """What head_g takes (Table 6): z (pre), or u of a personal (post_P) or a shared (post_G) projector."""
    personal: tuple[bool, bool, bool, bool] = (False, True, True, False)
    """Which of encoder, projector, head_p, head_g stay at the site (Table 7). post_G shares the projector
    whatever is said here, unless all four stay."""
    paper_accounting: bool = False
    """Report the bytes of a transfer as Table 8 does: with the projector, although it is not sent."""

    def __post_init__(self) -> None:
        if self.train_mode == "simultaneous":
            refuse_idle(self, "stage2_bn", beside="train_mode = stagewise")


class Client(Participant):
    """Learn the site's own task first, then fit the global head to what the encoder sees."""

    heads = ("head_p", "head_g")
    settings: Config
    head_p: nn.Module
    head_g: nn.Module

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        shape = ProjectorShape(config.proj_depth, config.proj_hidden, config.proj_bn)
        self.projector = build_projector(self.features, shape)
        self.whole_batch = "its contrast compares the samples of a batch" if config.lambda_ else ""

    def travels(self, phase: str) -> Iterable[str]:
        """The shared modules, less what the batch-norm policy keeps."""
        return travelling(self, self.settings.bn_policy, shared_modules(self.settings))

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """Both stages, one after the other or at once."""
        if self.settings.train_mode == "simultaneous":
            return {"loss": sgd.train(self, self.parameters(), self._joint_loss, data=data, task=task)}
        loss = sgd.train(self, self._first_stage(), self._personal_loss, data=data, task=task)
        second, epochs = self.head_g.parameters(), self.settings.epochs
        loss_g = sgd.train(self, second, self._global_loss, data=data, task=task, first_epoch=epochs)
        return {"loss": loss, "loss_global": loss_g}

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """The stages' losses for those of their modules that stay."""
        if self.settings.train_mode == "simultaneous":
            return newcomer.fit(self, self._joint_loss, data=data, task=task)
        first, second = self._first_stage(), self.head_g.parameters()
        told = newcomer.fit(self, self._personal_loss, data=data, task=task, parameters=first)
        return newcomer.fit(self, self._global_loss, data=data, task=task, parameters=second) | told

    def _first_stage(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.projector.parameters(), *self.head_p.parameters()]

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """How far the classes lie apart before the projector (z) and after it (u), on the test set (Fig. 5)."""
        samples = probe(data.test)
        if not len(samples):
            return {}
        seen = [self.represent(x) for x, _ in samples.batches(SEEN_AT_ONCE)]
        z, u = (torch.cat(parts) for parts in zip(*seen, strict=True))
        before, after = separate_classes(z, samples.y).explained, separate_classes(u, samples.y).explained
        return {"separation/before": before, "separation/after": after}

    def represent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What lies before the projector (z, shared by all sites) and after it (u, the site's own)."""
        z: Tensor = self.encoder(x)
        u: Tensor = self.projector(z)
        return z, u

    def forward(self, x: Tensor) -> Tensor:
        """Both heads added (Eq. 5)."""
        return self.views(x)["combined"]

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """The accuracy triple: both heads, the global one, the personal one."""
        z, u = self.represent(x)
        of_all, own = self._global_scores(z, u), self.head_p(u)
        combined = of_all + own if self.settings.ensemble == "logit" else of_all.softmax(1) + own.softmax(1)
        return {"combined": combined, "global": of_all, "personal": own}

    def _global_scores(self, z: Tensor, u: Tensor) -> Tensor:
        scores: Tensor = self.head_g(z if self.settings.gclf_position == "pre" else u)
        return scores

    def _personal_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """L_1 = CE + λ L_con (Eq. 6-8)."""
        _, u = self.represent(x)
        return self._loss_after_projection(u, y)

    def _global_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """L_2 on representations held fixed (Eq. 9, 10)."""
        if self.settings.stage2_bn == "eval":
            self.encoder.eval()
            self.projector.eval()
        # The projector runs even when head_g takes z: its running statistics follow the encoder's.
        with torch.no_grad():
            z, u = self.represent(x)
        return cross_entropy(self._global_scores(z, u), y)

    def _joint_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """L_1 + L_2 at once; here the global head's gradient reaches the encoder (Table 4)."""
        z, u = self.represent(x)
        return self._loss_after_projection(u, y) + cross_entropy(self._global_scores(z, u), y)

    def _loss_after_projection(self, u: Tensor, y: Tensor) -> Tensor:
        contrast = supervised_contrast(u, y, temperature=self.settings.tau)
        return cross_entropy(self.head_p(u), y) + self.settings.lambda_ * contrast


def shared_modules(config: Config) -> list[str]:
    """Which modules leave the site: `personal` decides, post_G adds the projector if any leaves."""
    stay = dict(zip(MODULES, config.personal, strict=True))
    if config.gclf_position == "post_G" and not all(config.personal):
        stay["projector"] = False
    return [name for name in MODULES if not stay[name]]


def accounted_bytes(client: Client, sent: int) -> int:
    """Bytes of one transfer for a report: those sent, with `paper_accounting` an unsent projector's on top.

    The paper's Table 8 charges four bytes for each of its numbers that would travel if it were shared.
    """
    config = client.settings
    if not config.paper_accounting or "projector" in shared_modules(config):
        return sent
    values: Mapping[str, Tensor] = client.state_dict()
    projector = travelling(client, config.bn_policy, ["projector"])
    return sent + 4 * sum(values[name].numel() for name in projector)


Server = Averaging
DIAGNOSTICS = {
    "views": "combined adds both heads and is what the method predicts with; global is the head that all sites share, "
    "in front of the projector; personal is the site's own, behind it.",
    "loss": "What the first stage minimises, in its last epoch: cross entropy of the personal head and λ times the "
    "contrast of classes behind the projector; with one stage for all, the global head's cross entropy too.",
    "separation": "R² of the classes of the test set by cosine: 1 when each class is one direction of its own, 0 when "
    "it is spread as widely as all. before the projector (z, which all sites share), and after it (u, the site's own).",
    "loss_global": "What the second stage minimises, in its last epoch: cross entropy of the global head.",
}
"""What is told by `learn`, each number in a sentence; and who predicts."""
NEWCOMER = (
    "Projector and personal head (and what else `personal` names) train ten times E epochs on the first stage's "
    "loss; encoder and global head are taken as they are."
)
SHOWS = ""
_PAPER: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _PAPER,
    "pacs": {**_PAPER, "lambda": 40.0, "tau": 0.2},
    "domainnet": {**_PAPER, "lambda": 2.0, "tau": 0.05},
    "office-home": {**_PAPER, "lambda": 2.0, "tau": 0.05},
    "repro": {**_PAPER, "ensemble": "logit", "stage2_bn": "train", "lambda": 40.0, "tau": 0.2},
}
"""Settings under one name: the paper's optimiser (Sec. 5.3; `paper` has our λ and τ), with it each data set's λ and τ,
or the authors' code with its own, which are those of PACS. Those of DomainNet and Office-Home are not certain: of the
authors' scripts for them one trains the other data set and one does not run. All are for the paper's pretrained encoder
and 300 rounds: a network from scratch learns next to nothing in 30.
"""
