"""Per-FedAvg: a common model that becomes a site's own by one step of training.

Fallah et al., Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach (NeurIPS 2020), the first-order form.
Rule: each step takes two batches of B samples. From w a trial step on the first, w' = w − alpha ∇CE(w; D1), then
w ← w − beta ∇CE(w'; D2): the gradient is taken at w' and applied to w. The next w is the mean weighted by samples.
A site predicts after one step (rate alpha) from the common model, on one batch of its training data.
Travels: the model, less what `bn_policy` keeps at home. Stays: batch-norm statistics, counters.
Departures: from the paper, no second derivatives. From the library that comparisons used: it goes twice over the
data in a round (`passes = 2`), and for a year fitted the model to test samples with their labels, which is never
done here. Plain steps: `momentum` and `weight_decay` have no place in them and are refused.
Costs: the bytes of FedAvg; two gradients a step, each on half of the samples, and one more copy of the model.
Choice: when sites are many and each must have a model of its own at once, also those that never trained. A site
needs two batches of samples (2B); with fewer it declines the round. One step cannot bridge large differences.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.errors import TooFewSamples
from pfl_common.learning import sgd
from pfl_common.learning.arithmetic import known
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
from pfl_common.learning.partition import has_batch_norm
from pfl_common.spec.run import Task

_PLAIN = Why("the steps of this method are plain; see alpha and beta")


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """The two rates, and how often a round goes over the data."""

    momentum: Annotated[float, Field(ge=0, le=0), _PLAIN] = 0.0
    """Has no place here: each step is taken from w anew."""
    weight_decay: Annotated[float, Field(ge=0, le=0), _PLAIN] = 0.0
    """Has no place here either."""
    tail: Literal["drop"] = "drop"
    """What is left over under two batches is not used."""
    drop_last: Literal[True] = True
    """The same, under its other name."""
    alpha: Annotated[float | None, Field(ge=0, le=1_000_000), Why("0 takes no trial step")] = None
    """alpha: rate of the trial step and of the step before predicting; not given, it is lr."""
    beta: Annotated[float | None, Field(gt=0, le=1_000_000), Why("0 learns nothing")] = None
    """beta: rate of the step that is kept; not given, it is lr."""
    passes: Annotated[int, Field(ge=1, le=2), Why("the library goes twice over the data")] = 1
    """How often each of the E epochs goes over the data; at 2 it has the steps of one of FedAvg and sees each
    sample twice."""


class Client(Participant):
    """Learn a model from which one step leads to a good one."""

    settings: Config
    whole_batch = ""

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs, passes times each, over pairs of batches; what is left over under a pair is not used."""
        size = 2 * self.settings.batch
        if len(data.train) < size:
            raise TooFewSamples(
                f"this site has {len(data.train)} training samples",
                expected=f"at least {size}: Per-FedAvg takes two batches of {self.settings.batch} for each step",
                advice="ask the coordinator for a smaller batch, or stay in the run without training",
            )
        epochs = self.settings.epochs * self.settings.passes
        return {
            "loss": sgd.repeat(self, self._step, data=data, task=task, epochs=epochs, size=size, tail="drop")
        }

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        half, moving = len(y) // 2, list(self.parameters())
        before = [value.detach().clone() for value in moving]
        self._descend(x[:half], y[:half], moving, rate=self._alpha)
        beta = self.settings.lr if self.settings.beta is None else self.settings.beta
        return self._descend(x[half:], y[half:], before, rate=beta)

    def _descend(self, x: Tensor, y: Tensor, start: Iterable[Tensor], *, rate: float) -> Tensor:
        """Take the gradient where the model is and put the model at one step down it from `start`."""
        moving = list(self.parameters())
        loss, slopes = self.arithmetic.gradients(self._loss, moving, x, y)
        with torch.no_grad():
            for value, origin, slope in zip(moving, start, known(slopes), strict=True):
                torch.sub(origin, rate * slope, out=value)
        return loss

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self(x), y)

    @property
    def _alpha(self) -> float:
        return self.settings.lr if self.settings.alpha is None else self.settings.alpha

    def personalise(self, data: LocalData, task: Task) -> None:
        """One step on one batch of training samples; never on those it is tested with."""
        x, y = next(data.batches(task, 0, size=self.settings.batch))
        if len(y) == 1 and has_batch_norm(self):
            return  # The variance of one sample is not defined.
        self.train()
        self._descend(x, y, self.parameters(), rate=self._alpha)

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """What one step more is worth on samples that were not trained with."""
        samples, adapted = probe(data.test), copy.deepcopy(self)
        if not len(samples):
            return {}
        with torch.enable_grad():
            adapted.personalise(data, task)
        before, after = _count_right(self, samples), _count_right(adapted.eval(), samples)
        return {"accuracy/before": before / len(samples), "accuracy/after": after / len(samples)}


def _count_right(model: Participant, samples: Samples) -> int:
    return sum(int((model(x).argmax(1) == y).sum()) for x, y in samples.batches(256))


Server = Averaging
DIAGNOSTICS = {
    "loss": "Cross entropy on the second of two batches after the trial step on the first, in the last epoch.",
    "accuracy": "The share of test samples a site names rightly with the model it has just trained, before and after "
    "the step on one training batch that precedes each prediction.",
}
"""What is told by `learn` and `diagnose`, each number or family of numbers in a sentence."""
NEWCOMER = (
    "It takes the one step of rate alpha, on one batch of its training data, that every site takes before it "
    "predicts; the shared model is taken as it is."
)
SHOWS = ""
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "batch": 10, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _FEDCP,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "repro": {**_FEDCP, "passes": 2},
}
"""The settings of the papers that compare with it: `paper` and `fedcp` are FedCP's and GPFL's with the 4-layer CNN
(ResNet-18 and fastText: `fedcp-resnet18`). `repro` goes twice over the data, as the library they used, in which
alpha = beta = lr too.
"""
