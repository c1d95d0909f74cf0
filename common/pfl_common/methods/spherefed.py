"""SphereFed: all sites learn towards the same fixed directions on a sphere, one for each class.

Dong et al., SphereFed: Hyperspherical Federated Learning (ECCV 2022). There is no public code.

Rule: W has one orthonormal row for each class and is never trained. Features are divided by their length,
z = h / max(‖h‖, 1e-12), and the scores are o = W z. The encoder learns for E epochs on the mean of (o − one_hot(y))²
over samples and classes; the next one is the mean weighted by training samples. With `calibrate` nobody trains in the
last round: sites send A = Σ z zᵀ and b = Σ z one_hot(y)ᵀ of their training samples, and the coordinator solves
W_cal = ((A + γI)⁻¹ b)ᵀ, which then predicts in place of W.

Travels: the encoder, less what `bn_policy` keeps; in the calibrating round each site's means of A and b go up in its
place, weighted by training samples, and W_cal comes down. Stays: batch-norm statistics, counters.

Departures: reconstructed from the paper's text. `loss = ce` takes s·o as logits. Sites that never trained fill their
batch-norm statistics before they send their sums.

Costs: bytes as FedAvg less the head; with `calibrate` each site sends K(K + C) numbers in the last round, in place of
its encoder. Memory and processor as FedAvg.

Choice: for sites with few or differing classes, whose heads would drift apart. Its gradients are small: it wants a
large learning rate (0.1 to 1) and time. It needs as many features as classes and a backbone with a linear head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize, one_hot

from pfl_common.app.config import Why, refuse_idle
from pfl_common.errors import SettingError
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.arithmetic import in_double
from pfl_common.learning.measures import class_cosines
from pfl_common.learning.method import (
    STRICT,
    Arrivals,
    Averaging,
    Closed,
    LocalData,
    Metrics,
    Participant,
    Settings,
    probe,
    weigh_usually,
)
from pfl_common.learning.partition import has_batch_norm, travelling
from pfl_common.models import Backbone
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Quantity, Up, Weighted


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """SphereFed's choices."""

    loss: Literal["mse", "ce"] = "mse"
    """Mean squared error between scores and one-hot labels, or cross entropy of s times the scores."""
    scale: Annotated[
        float, Field(ge=0.01, le=10_000), Why("scores lie in -1..1: small ones tell nothing")
    ] = 10.0
    """s: what scores are multiplied by before the cross entropy; for `loss = ce`."""
    calibrate: bool = False
    """Fit the classifier to the features of all sites in the last round, by least squares."""
    gamma: Annotated[
        float, Field(ge=1e-9, le=1_000_000), Why("0 leaves directions open in which no sample lies")
    ] = 1e-3
    """γ: ridge of the least squares; for `calibrate`."""

    def __post_init__(self) -> None:
        if self.loss == "mse":
            refuse_idle(self, "scale", beside="loss = ce")
        if not self.calibrate:
            refuse_idle(self, "gamma", beside="calibrate = true")


def phase(config: Config, round: int, rounds: int) -> str:
    """Training, and with `calibrate` a last round that only sums."""
    return "calibrate" if config.calibrate and round == rounds else "train"


class Frame(nn.Module):
    """The classifier: orthonormal rows that are never trained, and what the calibration made of them."""

    rows: Tensor
    calibrated: Tensor
    fitted: Tensor

    def __init__(self, classes: int, features: int, *, calibrate: bool) -> None:
        super().__init__()
        self.calibrate = calibrate
        self.register_buffer("rows", torch.zeros(classes, features))
        if calibrate:
            self.register_buffer("calibrated", torch.zeros(classes, features))
            self.register_buffer("fitted", torch.zeros(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The orthonormal columns of a Gaussian matrix, turned into rows."""
        classes, features = self.rows.shape
        self.rows.copy_(torch.linalg.qr(torch.randn(features, classes, dtype=torch.float64)).Q.T)

    def forward(self, z: Tensor) -> Tensor:
        """Scores of the prediction; the flag may come back a little off from a masked sum."""
        if not self.calibrate:
            return z @ self.rows.T
        # Chosen by a value and not by an `if`, so that the whole can be exported as one graph.
        return z @ torch.where(self.fitted > 0.5, self.calibrated, self.rows).T


class Client(Participant):
    """An encoder that turns its features towards the frame."""

    heads = ()
    settings: Config
    whole_batch = ""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        backbone.expect_linear_head("spherefed")
        if classes > backbone.features:
            raise SettingError(
                f"spherefed got {classes} classes and a backbone of {backbone.features} features",
                expected="at least as many features as classes: each class has a direction of its own",
                advice="choose a backbone with more features, or another method",
            )
        super().__init__(config, backbone, classes)
        self.frame = Frame(classes, self.features, calibrate=config.calibrate)

    def travels(self, phase: str) -> Iterable[str]:
        """The encoder; after the calibration its result too."""
        fitted = {"frame.calibrated", "frame.fitted"} if phase == "calibrate" else set()
        return travelling(self, self.settings.bn_policy, ["encoder"]) | fitted

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the distance to the frame; in the last round of a calibrated run sums alone."""
        if task.phase == "calibrate":
            self._sum_up(data, task)
            return {}
        return {"loss": sgd.train(self, self.parameters(), self._loss, data=data, task=task)}

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """The same loss for what stays: no parameter, unless batch norms do."""
        return newcomer.fit(self, self._loss, data=data, task=task)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        scores = self.directions(x) @ self.frame.rows.T
        if self.settings.loss == "ce":
            return cross_entropy(self.settings.scale * scores, y)
        return mse_loss(scores, one_hot(y, self.classes).to(scores))

    def directions(self, x: Tensor) -> Tensor:
        """Features at length 1."""
        return normalize(self.encoder(x), dim=1, eps=1e-12)

    @torch.no_grad()
    def _sum_up(self, data: LocalData, task: Task) -> None:
        """Means of z zᵀ and z one_hot(y)ᵀ over the training samples, in double precision."""
        if task.is_first and self.owns_statistics and has_batch_norm(self):
            self._fill_statistics(data)
        self.eval()
        gram, hits = (
            in_double(self.frame.rows.new_zeros(self.features, n)) for n in (self.features, self.classes)
        )
        for x, y in data.train.batches(256):
            z = in_double(self.directions(x))
            gram += z.T @ z
            hits += z.T @ one_hot(y, self.classes).to(z)
            self.progress(0)
        self._sums = {"gram": gram / len(data.train), "hits": hits / len(data.train)}

    def _fill_statistics(self, data: LocalData) -> None:
        self.train()
        for x, _ in data.train.batches(256):
            if len(x) > 1:
                self.encoder(x)

    def report(self, data: LocalData, task: Task) -> Up:
        """What travels; of the calibration the two means, by samples whatever `aggregation` says: they are sums."""
        if task.phase != "calibrate":
            return super().report(data, task)
        weight = torch.tensor(len(data.train))
        sums = {name: mean.to(self.frame.rows.dtype) for name, mean in self._sums.items()}
        return Up(summed={name: Weighted(mean, weight) for name, mean in sums.items()})

    def weighs(self, phase: str) -> Quantity:
        """As usual, but in the calibration by samples."""
        return "count" if phase == "calibrate" else weigh_usually(self.settings)

    def forward(self, x: Tensor) -> Tensor:
        """W z, or W_cal z once there is one."""
        scores: Tensor = self.frame(self.directions(x))
        return scores

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """How near features lie to their class's direction, and to the nearest other one."""
        samples = probe(data.test)
        cosines = [self.directions(x) @ self.frame.rows.T for x, _ in samples.batches(256)]
        return class_cosines(torch.cat(cosines), samples.y) if cosines else {}


class Server(Averaging):
    """Keep the mean of the encoders; at the end solve for the calibrated classifier."""

    config: Config

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """The mean; in the calibrating round the encoder stays, and beside it comes W_cal."""
        if task.phase != "calibrate":
            return super().close(state, arrivals, task)
        totals, weights = arrivals.total.totals, arrivals.total.weights
        if "gram" not in totals or not weights["gram"]:
            return Closed(state, {})
        # No mean of products of unit vectors leaves -1..1, whatever a site may say.
        samples = float(weights["gram"])
        gram, hits = (totals[name].clamp(-samples, samples) for name in ("gram", "hits"))
        ridge = self.config.gamma * torch.eye(len(gram), dtype=gram.dtype)
        solved, failed = torch.linalg.solve_ex(gram + ridge, hits)
        dtype = next(value.dtype for value in state.values())
        calibrated = solved.T.contiguous().to(dtype)
        if failed or not calibrated.isfinite().all():
            return Closed(state, {})
        fitted = torch.ones((), dtype=dtype)
        return Closed(State({**state, "frame.calibrated": calibrated, "frame.fitted": fitted}), {})


def no_robust(config: Config) -> str:
    """The calibration solves for a classifier from sums."""
    return "with calibrate = true the last round needs sums over all samples" if config.calibrate else ""


def no_encoding(config: Config) -> str:
    """The calibration solves for a classifier from sums of products of features."""
    if not config.calibrate:
        return ""
    return "with calibrate = true the last round solves for a classifier, from features of one encoder at all sites"


DIAGNOSTICS = {
    "loss": "Mean squared distance of the scores from the one-hot label, or the cross entropy, in the last epoch of a "
    "site's training.",
    "cosine": "Of the features of test samples (at most 2000) with their own class's fixed direction (own) and with "
    "the nearest other one (rival): 1 and 0 would be perfect.",
}
"""What is told of a site's training, each number or family of numbers in a sentence."""
NEWCOMER = "Encoder and frame are taken as they are; statistics of batch norms are filled in one pass."
SHOWS = ""
_DUALFED: Mapping[str, JsonValue] = {"lr": 0.1, "momentum": 0.5, "batch": 256, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "dualfed-office-home": {**_DUALFED, "lr": 1.0},
}
"""DualFed's optimiser for SphereFed, whose learning rate is 0.1 on PACS and DomainNet and 1 on Office-Home. Loss, scale
and ridge are ours.
"""
