"""FedETF: a fixed classifier whose classes lie as far apart as they can, and features that learn to meet it.

Li et al., No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with Synthetic and Fixed Classifier
(ICCV 2023).

Rule: V is a simplex equiangular tight frame: C unit vectors with cosines −1/(C − 1), never trained. A projection
p = projection(encoder(x)) is divided by its length, μ = p / max(‖p‖, 1e-12), and the logits are o = s Vᵀμ with a learnt
scale s. Encoder, projection and s learn for E epochs on the balanced softmax, CE(o + log n, y) with n_c the site's
training samples of class c; the next ones are means weighted by training samples. The prediction is the class whose
vector has the largest cosine with μ. With `etf_finetune` each site ends, after the last round and for itself, with one
more such update and then 20 times 3 epochs on V and 3 on the projection, on the plain cross entropy.

Travels: encoder, projection and s, less what `bn_policy` keeps. Stays: batch-norm statistics, counters, and after
fine-tuning the site's own V and projection.

Departures: from the code, a class that a site lacks is left out of its softmax instead of counted as 1 (`absent`).
`projection = none` is DualFed's comparison, where the backbone's projector is the projection.

Costs: bytes and memory as FedAvg (a C×C layer more); with `etf_finetune` E + 120 passes over the data after the run.

Choice: for sites with few or differing classes, whose heads would drift apart. It learns slowly at first: in DualFed's
comparison it needed several times the rounds of FedAvg. It needs a backbone with a linear head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pfl_common.app.config import Why
from pfl_common.errors import SettingError
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.balanced_softmax import balanced_cross_entropy
from pfl_common.learning.measures import class_cosines
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings, probe
from pfl_common.learning.partition import travelling
from pfl_common.models import Backbone
from pfl_common.spec.run import Task

TURNS, EPOCHS = 20, 3
"""Fine-tuning: how often V and projection take turns, and the epochs of each."""
RATE_OF_VECTORS, RATE_OF_PROJECTION = 0.1, 0.05


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """FedETF's choices."""

    etf_finetune: bool = False
    """After the last round fit V and the projection to the site (the authors' code does). The view `finished` measures
    what it gains.
    """
    scale_init: Annotated[float, Field(ge=0.001, le=1000), Why("the paper's is 1, and it is learnt")] = 1.0
    """s: the scale of the logits before the first round."""
    absent: Literal["exclude", "one"] = "exclude"
    """What a class without samples counts in the balanced softmax: nothing, or 1 as in the authors' code."""
    projection: Literal["linear", "none"] = "linear"
    """A linear layer from features to C numbers, or none where the backbone ends in a projector of its own."""


class Etf(nn.Module):
    """The classifier: one vector (column) for each class, all equally far apart."""

    vectors: Tensor

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(width, classes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """V = √(C/(C−1)) · P (I − 11ᵀ/C), with P the orthonormal columns of a Gaussian matrix."""
        width, classes = self.vectors.shape
        self.build(torch.linalg.qr(torch.randn(width, classes, dtype=torch.float64)).Q)

    def build(self, basis: Tensor) -> None:
        """The frame in the space of some orthonormal columns."""
        classes = basis.shape[1]
        centred = torch.eye(classes, dtype=basis.dtype) - 1 / classes
        self.vectors.copy_(sqrt(classes / (classes - 1)) * basis @ centred)

    def forward(self, directions: Tensor) -> Tensor:
        """Cosines with each class's vector."""
        return directions @ self.vectors


class Client(Participant):
    """An encoder and a projection that learn to meet the fixed frame."""

    heads = ()
    settings: Config
    whole_batch = ""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        check_fit(config, backbone, classes)
        super().__init__(config, backbone, classes)
        width = self.features
        if config.projection == "linear":
            self.projection, width = nn.Linear(self.features, classes), classes
        self.scale = nn.Parameter(torch.tensor(config.scale_init))
        self.etf = Etf(width, classes)

    def travels(self, phase: str) -> Iterable[str]:
        """Encoder, projection and scale."""
        return travelling(self, self.settings.bn_policy, ["encoder", "projection", "scale"])

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the balanced softmax."""
        loss = self._update(data, task)
        return {"loss": loss, "scale": self.scale.item()}

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """The same loss for what stays: no parameter, unless batch norms do; `finish` comes after it."""
        return newcomer.fit(self, self._balanced(data), data=data, task=task)

    def _update(self, data: LocalData, task: Task) -> float:
        return sgd.train(self, self.parameters(), self._balanced(data), data=data, task=task)

    def _balanced(self, data: LocalData) -> sgd.Loss:
        """CE(o + log n, y), with the site's own counts."""
        counts = data.counts.clamp(min=1) if self.settings.absent == "one" else data.counts

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return balanced_cross_entropy(self.scale * self(x), y, counts)

        return loss

    def finish(self, data: LocalData, task: Task) -> None:
        """One more update, then V and projection in turns, if that is wanted."""
        if self.settings.etf_finetune:
            self._update(data, task)
            for turn in range(TURNS):
                self._take_turns(data, task, self.settings.epochs + 2 * EPOCHS * turn)

    def _take_turns(self, data: LocalData, task: Task, first_epoch: int) -> None:
        """First V, without momentum and penalty, then the projection; the plain cross entropy."""

        def fit(group: dict[str, object], epoch: int) -> None:
            sgd.train(self, [group], self._plain_loss, data=data, task=task, epochs=EPOCHS, first_epoch=epoch)

        vectors = self.etf.vectors.requires_grad_()
        fit({"params": [vectors], "lr": RATE_OF_VECTORS, "momentum": 0.0, "weight_decay": 0.0}, first_epoch)
        vectors.requires_grad_(False).grad = None
        fit({"params": self._projecting().parameters(), "lr": RATE_OF_PROJECTION}, first_epoch + EPOCHS)

    def _projecting(self) -> nn.Module:
        own = self.settings.projection == "linear"
        return self.projection if own else self.get_submodule("encoder.projector")

    def _plain_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.scale * self(x), y)

    def forward(self, x: Tensor) -> Tensor:
        """Cosines Vᵀμ; the scale changes no prediction, even where it became negative."""
        p = self.encoder(x)
        if self.settings.projection == "linear":
            p = self.projection(p)
        cosines: Tensor = self.etf(normalize(p, dim=1, eps=1e-12))
        return cosines

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """How near features lie to their class's vector, and to the nearest other one."""
        samples = probe(data.test)
        cosines = [self(x) for x, _ in samples.batches(256)]
        return class_cosines(torch.cat(cosines), samples.y) if cosines else {}


def check_fit(config: Config, backbone: Backbone, classes: int) -> None:
    """Refuse backbones that a fixed frame cannot follow."""
    backbone.expect_linear_head("fedetf")
    if config.projection == "none" and not backbone.has_projector:
        raise SettingError(
            "fedetf got projection = none, and the backbone has no projector",
            expected="a projector that takes the part of the projection",
            advice="add --encoder-projector, or leave projection = linear",
        )
    if config.projection == "none" and classes > backbone.features:
        raise SettingError(
            f"fedetf got projection = none, {classes} classes and a backbone of {backbone.features} features",
            expected="at least as many features as classes",
            advice="leave projection = linear, or choose a backbone with more features",
        )


Server = Averaging
DIAGNOSTICS = {
    "loss": "Balanced cross entropy in the last epoch of a site's training.",
    "scale": "What the site made of the scale s by which cosines become logits.",
    "cosine": "Of the projected features of test samples (at most 2000) with their own class's vector (own) and with "
    "the nearest other one (rival). With C classes, 1 and -1/(C-1) would be perfect.",
}
"""What is told of a site's training, each number or family of numbers in a sentence."""
NEWCOMER = (
    "Encoder, projection, scale and the fixed frame are taken as they are, statistics of batch norms are filled in "
    "one pass; with `etf_finetune` it ends, as every site does, with E epochs on all of it and 120 on frame and "
    "projection."
)
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "repro": {**_DUALFED, "absent": "one", "etf_finetune": True},
}
"""DualFed's optimiser, with the options of FedETF's paper, or those of its authors' code (`repro`): absent classes
count as 1, and each site ends with fine-tuning. DualFed does not say that it did either.
"""
