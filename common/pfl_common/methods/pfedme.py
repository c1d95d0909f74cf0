"""pFedMe: a personalised model beside the common one, tied to it by a spring; the common one follows.

Dinh et al., Personalized Federated Learning with Moreau Envelopes (NeurIPS 2020).
Rule: theta starts at the received w. For each batch it takes K_in steps theta ← theta − eta_p (∇CE(theta) +
lambda (theta − w_i) + mu theta), then w_i ← w_i − lr lambda (w_i − theta); theta goes on from batch to batch. The next
w is (1 − beta) w + beta times the mean of the w_i, weighted by samples. theta predicts.
Travels: w, less what `bn_policy` keeps at home. Stays: theta with its own batch-norm statistics, counters.
Departures: from the paper, theta is not solved for to a given accuracy and is not put back to w_i before each
batch, and mu is not there: all three are as in both codes (mu is an optimizer's default there). Those codes mean to
measure theta, but their list of its parameters is the live model's, so they measure w_i (`eval_model = w_local`).
Steps are plain: `momentum` and `weight_decay` have no place in them and are refused.
Costs: the bytes of FedAvg; two models in memory and K_in gradients a batch, five times the work by default.
Choice: when sites differ much and have processor time to spare. lr times lambda is the share of the way that w_i
goes towards theta after each batch: choose lr so that it stays below 1. Ditto does much the same for less work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why
from pfl_common.errors import SettingError
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.arithmetic import known
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
from pfl_common.learning.partition import travelling
from pfl_common.learning.proximal import distance
from pfl_common.learning.second_model import build_second, predict, start_second
from pfl_common.models import Backbone
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State, load_into

_PLAIN = Why("the steps of this method are plain; its mu is a decay")


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """The paper's symbols, mu of its code, and which model is measured."""

    momentum: Annotated[float, Field(ge=0, le=0), _PLAIN] = 0.0
    """Has no place here."""
    weight_decay: Annotated[float, Field(ge=0, le=0), _PLAIN] = 0.0
    """Has no place here; see mu."""
    K_in: Annotated[
        int, Field(ge=1, le=1000), Why("each is a pass through the network; usual are 1 to 10")
    ] = 5
    """K_in (the paper's K): steps of theta on each batch."""
    lambda_: Annotated[float, Field(ge=0, le=10_000), Why("0 lets go of w; usual are 5 to 50")] = 15.0
    """lambda: strength of the spring between theta and w."""
    beta: Annotated[float, Field(gt=0, le=10), Why("0 learns nothing, 1 is the mean")] = 1.0
    """beta: how far the common model goes towards the mean of the sites' (1) or past it."""
    eta_p: Annotated[float, Field(gt=0, le=1_000_000), Why("0 learns nothing")] = 0.01
    """eta_p: step size of theta; lr, eta, is that of w. A run of few rounds wants a larger one, such as 0.1."""
    mu: Annotated[float, Field(ge=0, le=1), Why("0 is the paper, 0.001 both codes")] = 0.001
    """mu: decay of theta in its steps."""
    eval_model: Literal["theta", "w_local"] = "theta"
    """Predict with theta, or with w: as received before training, the site's own w_i after it (`eval_point`)."""

    def __post_init__(self) -> None:
        if self.beta > 1 and self.bn_policy == "share_all":
            raise SettingError(
                f"beta is {self.beta:g} and bn_policy is share_all",
                expected="a beta of at most 1 where running variances are shared: past their mean they can be negative",
                advice="take bn_policy=local_stats, or a smaller beta",
            )


class Client(Participant):
    """Let theta learn, and w follow it."""

    settings: Config
    copies_shared = ("theta",)
    whole_batch = ""

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self.theta = build_second(self)

    def travels(self, phase: str) -> Iterable[str]:
        """The common model w."""
        return travelling(self, self.settings.bn_policy, ["encoder", "head"])

    def receive(self, down: State, task: Task) -> None:
        """Take w; theta stays, for a site is measured with it, unless it never learnt anything."""
        super().receive(down, task)
        if task.is_first:
            start_second(self.theta, self)

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of K_in steps of theta and one of w for each batch."""
        start_second(self.theta, self)
        loss = sgd.repeat(self, self._step, data=data, task=task)
        parameters = [name for name, _ in self.theta.named_parameters()]
        # All passes through the network were theta's; w has no statistics of its own.
        buffers = self.theta.state_dict().keys() - set(parameters)
        load_into(self, State.view(self.theta, buffers))
        return {"loss": loss, "apart": distance(self.theta, State.view(self, parameters))}

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """The same steps of theta, tied to w as it came; nothing where w predicts."""
        if self.settings.eval_model != "theta":
            return {}
        epochs = newcomer.ROUNDS * self.settings.epochs
        loss = sgd.repeat(self, lambda x, y: self._follow(x, y)[-1], data=data, task=task, epochs=epochs)
        return {"loss": loss}

    def _tied(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Each parameter of theta with the one of w that it is tied to."""
        return [(own, self.get_parameter(name)) for name, own in self.theta.named_parameters()]

    def _follow(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """K_in steps of theta; the losses before each."""
        tied = self._tied()
        return [self._step_theta(x, y, tied) for _ in range(self.settings.K_in)]

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        losses = self._follow(x, y)
        with torch.no_grad():
            for own, common in self._tied():
                common.sub_((common - own).mul_(self.settings.lr * self.settings.lambda_))
        return losses[-1]

    def _step_theta(self, x: Tensor, y: Tensor, tied: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        chosen, moving = self.settings, [own for own, _ in tied]
        loss, slopes = self.arithmetic.gradients(self._theta_loss, moving, x, y)
        with torch.no_grad():
            for (own, common), slope in zip(tied, known(slopes), strict=True):
                # eta_p (slope + lambda (theta - w) + mu theta), in place: fresh memory costs more than the sums.
                pull = (own - common).mul_(chosen.lambda_).add_(slope).add_(chosen.mu * own)
                own.sub_(pull.mul_(chosen.eta_p))
        return loss.detach()

    def _theta_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(predict(self.theta, x), y)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of theta, or of w."""
        return predict(self.theta, x) if self.settings.eval_model == "theta" else super().forward(x)


class Server(Averaging):
    """Go from w to the sites' mean, or a part of the way, or past it."""

    config: Config

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """(1 − beta) w + beta mean(w_i); where nobody sent anything the two are the same."""
        mean, beta = super().close(state, arrivals, task).state, self.config.beta
        return Closed(State({name: torch.lerp(state[name], value, beta) for name, value in mean.items()}), {})


DIAGNOSTICS = {
    "loss": "Cross entropy of theta before its last step on each batch, in the last epoch of a site's training.",
    "apart": "How far theta is from the site's w after training: the norm of the difference of all parameters. A "
    "larger lambda makes it smaller.",
}
"""What is told by `learn`, each number in a sentence."""
NEWCOMER = (
    "Its model theta begins at w and takes K_in steps a batch over ten times E epochs, tied to w by the spring; w "
    "is taken as it is."
)
SHOWS = ""
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "batch": 10, "epochs": 1, "drop_last": True, "eta_p": 0.01}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _FEDCP,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "fedcp-mnist": {**_FEDCP, "eta_p": 0.1},
    "repro": {**_FEDCP, "eval_model": "w_local", "eval_point": "post"},
}
"""The settings of the papers that compare with it: `paper` and `fedcp` are FedCP's and GPFL's with the 4-layer CNN on
Cifar, `fedcp-mnist` theirs on MNIST and Fashion-MNIST, `fedcp-resnet18` that network and fastText; K_in,
lambda and beta are the defaults in all of them. `repro` measures what the authors' code measures.
"""
