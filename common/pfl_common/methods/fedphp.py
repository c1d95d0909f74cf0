"""FedPHP: a site's private model is handed on from round to round and teaches, or is mixed into, the common one.

Li et al., FedPHP: Federated Personalization with Inherited Private Models (ECML PKDD 2021).
Rule: in `variant = blend` a site mixes its own last model w_i into the received one, w = (1 − mu_t) w^t + mu_t w_i,
with mu_t = mu (t − 1)/T, and trains on (1 − lambda) CE + lambda MMD²(h, h^t), h^t from the encoder as received;
w predicts as soon as it is mixed. In `original` w starts from w^t and learns on (1 − lambda) CE + lambda R from an
inherited model p, by its probabilities (`reg = kd`) or features (mmd); then p ← mu_t p + (1 − mu_t) w with mu_t =
mu min(1, n / max(1, rho T)) after n earlier rounds of this site; p predicts. `lib2024` is as original with mmd and
mu_t = mu t/T; w predicts, so measure after training. The next w^t is the mean weighted by samples.
Travels: the model, less what `bn_policy` keeps at home. Stays: `own` (w_i or p), how often the site trained,
batch-norm statistics, counters.
Departures: the paper is `original`. `blend` is what its name stood for in the library of 2022 to 2024, from which the
published comparisons are; it counts rounds from 0, hence t − 1. Then that library changed to `lib2024`. Statistics
are not mixed on receipt; those of p are mixed as its parameters are.
Costs: the bytes of FedAvg; one or two more copies of the model in memory, B²K numbers for the discrepancy, and one more
forward pass a batch.
Choice: when sites take part again and again and should not forget themselves in between. Ditto and FedRep do the
same job with less to set; choose by measuring. A site that trains once gains nothing from what it inherits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why, refuse_idle
from pfl_common.errors import SettingError
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.loss_means import Means
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning.mmd import mmd2
from pfl_common.learning.partition import travelling
from pfl_common.learning.second_model import build_second, predict, start_second
from pfl_common.models import Backbone
from pfl_common.spec.run import RunSpec, Task
from pfl_common.tensors.state import State, load_into

BANDWIDTHS = (10, 15, 20, 50)


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """Which of the methods of this name, and its symbols."""

    variant: Literal["blend", "original", "lib2024"] = "blend"
    """The method of the published comparisons (blend), of the paper (original), or of the later library (lib2024)."""
    mu: Annotated[float, Field(ge=0, le=1), Why("it is a share; the paper's is 0.9")] = 0.9
    """mu: the share that one's own model has at the end; it grows from round to round."""
    lambda_: Annotated[float, Field(ge=0, le=1), Why("it is a share; the paper's are 0.05 to 0.1")] = 0.01
    """lambda: the share of the comparison with the teacher in the loss."""
    reg: Literal["kd", "mmd"] = "kd"
    """R of `original`: learn p's probabilities (kd) or have features like its own (mmd)."""
    temperature: Annotated[float, Field(ge=0.01, le=1000), Why("it divides scores; the paper's is 4")] = 4.0
    """Temperature of p's probabilities for `reg = kd`."""
    rho: Annotated[float, Field(gt=0, le=1), Why("it is a share of the rounds")] = 1.0
    """rho of `original`: in which share of the rounds a site trains; give what the run's participation is."""

    def __post_init__(self) -> None:
        if self.variant != "original":
            refuse_idle(self, "reg", "rho", "temperature", beside="variant = original")
        if self.reg != "kd":
            refuse_idle(self, "temperature", beside="reg = kd")


class Client(Participant):
    """Start from what was received and inherited, and learn under a teacher."""

    settings: Config
    copies_shared = ("own",)
    head: nn.Module
    participations: Tensor

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        taught_by_scores = config.variant == "original" and config.reg == "kd"
        self.whole_batch = "" if taught_by_scores else "its discrepancy compares the samples of a batch"
        self.own = build_second(self)
        self.register_buffer("participations", torch.tensor(0))
        # In a tuple, so that it is no part of what this site keeps or sends.
        self._received: tuple[nn.Module, ...] = ()
        self._parts = Means()

    def travels(self, phase: str) -> Iterable[str]:
        """The model."""
        return travelling(self, self.settings.bn_policy, ["encoder", "head"])

    def receive(self, down: State, task: Task) -> None:
        """Take w^t; blend mixes one's own model in, in the others a new site inherits w^t."""
        super().receive(down, task)
        if self.settings.variant != "blend":
            if task.is_first:
                start_second(self.own, self)
            return
        self._received = (copy.deepcopy(self.encoder).train().requires_grad_(False),)
        if not task.is_first:
            self._blend(task)

    def _share(self, task: Task) -> float:
        """mu_t, the share that one's own model has in this round."""
        if self.settings.variant == "original":
            expected = max(1.0, self.settings.rho * task.rounds)
            return self.settings.mu * min(1.0, int(self.participations) / expected)
        number = task.round - 1 if self.settings.variant == "blend" else task.round
        return self.settings.mu * number / task.rounds

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD under the teacher; then what is inherited next."""
        self._parts, share = Means(), self._share(task)
        model = chain(self.encoder.parameters(), self.head.parameters())
        loss = sgd.train(self, model, self._loss, data=data, task=task)
        self._hand_on(0.0 if self.settings.variant == "blend" else share)
        self.participations += 1
        self._received = ()
        return {"loss": loss, "mu": share} | self._parts.told("part")

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """Rounds under the teacher, from w^t; then what this variant predicts with: the blend with w^t, p, or w."""
        received = State.of(self, self.travels(task.phase))
        self._parts = Means()
        told = self._learn_alone(data, task)
        self._hand_on(0.0)
        self._received = ()
        if self.settings.variant != "lib2024":
            load_into(self, received)
        if self.settings.variant == "blend":
            self._blend(task)
        return told

    def _learn_alone(self, data: LocalData, task: Task) -> Metrics:
        """A newcomer trains the whole model, which is a copy of what travels until it is put back."""
        epochs = newcomer.ROUNDS * self.settings.epochs
        model = chain(self.encoder.parameters(), self.head.parameters())
        return {"loss": sgd.train(self, model, self._loss, data=data, task=task, epochs=epochs)}

    def _blend(self, task: Task) -> None:
        """w ← (1 − mu_t) w^t + mu_t w_i, parameters alone."""
        with torch.no_grad():
            for name, mine in self.own.named_parameters():
                self.get_parameter(name).lerp_(mine, self._share(task))

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        features = self.encoder(x)
        scores = self.head(features)
        plain, teacher = cross_entropy(scores, y), self._compare(x, features, scores)
        self._parts.note(len(y), cross_entropy=plain, teacher=teacher)
        return (1 - self.settings.lambda_) * plain + self.settings.lambda_ * teacher

    def _compare(self, x: Tensor, features: Tensor, scores: Tensor) -> Tensor:
        """MMD² of the features and the teacher's, or the cross entropy with the teacher's probabilities."""
        # What a site inherited is a finished model; the encoder just received sees batches as the one in training.
        blend = self.settings.variant == "blend"
        taught = (self._received[0] if blend else self.own.eval()["encoder"])(x)
        if self.settings.variant == "original" and self.settings.reg == "kd":
            return cross_entropy(scores, (self.own["head"](taught) / self.settings.temperature).softmax(1))
        return mmd2(features, taught, BANDWIDTHS)

    def _hand_on(self, share: float) -> None:
        """own ← share · own + (1 − share) · w, parameters and statistics; a counter is taken from w."""
        mine = self.own.state_dict()
        now = State.view(self, mine)
        mixed = {n: torch.lerp(now[n], v, share) for n, v in mine.items() if v.is_floating_point()}
        load_into(self.own, now | mixed)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the inherited model in `original`, else of the model as it is."""
        if self.settings.variant != "original":
            return super().forward(x)
        return predict(self.own, x)


class Server(Averaging):
    """Keep the mean, and see that sites know how often they are asked: they count on it in `original`."""

    def __init__(self, config: Config, spec: RunSpec) -> None:
        super().__init__(config, spec)
        asked = spec.participation
        share = 1.0 if asked.fixed else (asked.low + asked.high) / 2
        if config.variant == "original" and config.rho == 1 and share < 1:
            raise SettingError(
                f"fedphp: rho is 1, and this run asks {share:g} of the sites in a round",
                expected="with variant=original the share of the rounds in which a site trains",
                advice=f"write rho={share:g}",
            )


DIAGNOSTICS = {
    "loss": "Cross entropy and the comparison with the teacher, in the last epoch of a site's training.",
    "part": "The two by themselves, over all epochs of the round: cross_entropy, and teacher, which is MMD² of its "
    "features and the site's (with reg = kd the cross entropy with its probabilities).",
    "mu": "The share that the site's own model had in this round: mu_t.",
}
"""What is told by `learn`, each number in a sentence."""
NEWCOMER = (
    "Its own model begins at the shared one and trains ten times E epochs under that teacher; it predicts with the "
    "share mu_t of it blended into the shared model (variants original and lib2024: with its own model alone), "
    "which is taken as it is."
)
SHOWS = ""
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1, "drop_last": True}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _FEDCP,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "original": {**_FEDCP, "variant": "original", "lambda": 0.1},
    "lib2024": {**_FEDCP, "variant": "lib2024", "eval_point": "post"},
}
"""The settings of the papers that compare with it: `paper` and `fedcp` are FedCP's and GPFL's with the 4-layer CNN
(ResNet-18 and fastText: `fedcp-resnet18`); mu = 0.9 and lambda = 0.01 are ours, they publish none. `original` is the
method's own paper with its lambda (0.05 to 0.1), under the same optimiser.
"""
