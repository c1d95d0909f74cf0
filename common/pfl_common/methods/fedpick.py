"""FedPick: share encoder and head, and let each site pick, sample by sample, which features its own head looks at.

Zhu et al., Take Your Pick: Enabling Effective Personalized Federated Learning within Low-dimensional Feature Space
(arXiv:2307.13995, 2023). There is no public code.

Rule: z = encoder(x). The personal selection network gives a logit for each of the d components, and
m = 1[σ((select(z) + G' − G'')/τ) ≥ ε] with Gumbel noise (Eq. 9), as a step whose gradient is the sigmoid's. Three heads
look at z, at what is picked and at what is left: o_g = head_g(z), o_p = head_p(z ⊙ m), o_u = head_u(z ⊙ (1 − m)). All
learn in the same step of SGD, over E epochs, on CE(o_g, y) + λ_lce CE(o_p, y) + λ_ent Σ p_u log p_u + λ_dis [KL(p_p ‖
p_g) + KL(p_g ‖ p_p)], with p the softmax of o (Eq. 8-15); nothing is held fixed. The next encoder and head_g are the
mean weighted by training samples. The prediction adds o_g and o_p, without noise (Eq. 14).

Travels: encoder and head_g without their batch norm; with `share_pfsm` the selection and the other heads too. Stays:
selection, head_p, head_u, all batch norm.

Departures: Eq. 8 and 11 are cross entropies (the sign is missing in print). The selection's second layer has d outputs,
not d/2. The noise is Gumbel's, of which the text only says that it comes from uniform numbers. L_dis compares head_p
with head_g (Alg. 1 prints head_u). The divergences are in nats, at temperature 1. The three heads have one
architecture: the backbone's.

Costs: bytes as FedAvg less the batch norm. At the site d² + 1.5 d numbers more (67 million for d = 8192), two further
heads, and their passes.

Choice: for sites whose inputs look different (other devices, other styles), when each has the memory. On a network
with few features there is little to pick from, and a site that never trained picks at random.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import log
from typing import Annotated, Literal

import torch
from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import Why, refuse_idle
from pfl_common.learning import newcomer, sgd
from pfl_common.learning.arithmetic import in_double
from pfl_common.learning.loss_means import Means
from pfl_common.learning.measures import mean_fisher_score, sparsity
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings, probe
from pfl_common.learning.partition import BnPolicy, travelling
from pfl_common.models import Backbone
from pfl_common.spec.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """The symbols of the paper and the switches of its ablation table."""

    bn_policy: BnPolicy = "local_bn"
    """All batch norm stays at the site; share_all is the table's "share BN"."""
    use_pfsm: bool = True
    """Whether there is a selection, with its two heads. Without it the method is FedBN ("w/o PFSM"), and τ, ε and λ
    have no effect.
    """
    mask: Literal["hard", "soft"] = "hard"
    """m: take a component or leave it, or weigh it by the sigmoid (Eq. 21)."""
    tau: Annotated[float, Field(ge=0.001, le=1000), Why("it divides logits; the paper's are 1 and 10")] = 1.0
    """τ: temperature of the selection's sigmoid (Eq. 9)."""
    lambda_lce: Annotated[float, Field(ge=0, le=10_000), Why("the paper's are 1 and 10")] = 1.0
    """λ_lce: weight of the personal head's cross entropy (Eq. 11); 0 is the table's "w/o L_lce"."""
    lambda_ent: Annotated[float, Field(ge=0, le=10), Why("above 0.1 training explodes (Fig. 11)")] = 0.001
    """λ_ent: weight of the negative entropy of what is left (Eq. 12); 0 is "w/o L_ent"."""
    lambda_dis: Annotated[float, Field(ge=0, le=10_000), Why("the paper's are 1 and 10")] = 1.0
    """λ_dis: weight of the divergence between personal and global head (Eq. 13); 0 is "w/o L_dis"."""
    epsilon: Annotated[float, Field(ge=0.001, le=0.999), Why("at 0 or 1 all would be picked, or none")] = 0.5
    """ε: what the sigmoid must reach for a component to be picked; for `mask = hard`."""
    share_pfsm: bool = False
    """Whether selection, head_p and head_u are shared and averaged as well ("share PFSM")."""
    ensemble: Literal["logit", "prob", "global_only"] = "logit"
    """Add both heads' logits (Eq. 14) or their probabilities, or ask head_g alone ("w/o ensemble")."""

    def __post_init__(self) -> None:
        if not self.use_pfsm:
            refuse_idle(self, "share_pfsm", "mask", "ensemble", beside="use_pfsm = true")
        if self.mask == "soft":
            refuse_idle(self, "epsilon", beside="mask = hard")


class Client(Participant):
    """A shared encoder whose features the site picks from."""

    heads = ("head_g",)
    settings: Config
    head_g: nn.Module

    def __init__(self, config: Config, backbone: Backbone, classes: int) -> None:
        super().__init__(config, backbone, classes)
        self.whole_batch = "its selection draws noise for a batch as a whole" if config.use_pfsm else ""
        if config.use_pfsm:
            self.pfsm = nn.ModuleDict({"select": build_selection(self.features)})
            self.head_p, self.head_u = backbone.another_head(), backbone.another_head()

    def travels(self, phase: str) -> Iterable[str]:
        """Encoder and global head; if it is shared, the selection with its heads."""
        own = ["pfsm", "head_p", "head_u"] if self.settings.share_pfsm else []
        return travelling(self, self.settings.bn_policy, ["encoder", "head_g", *own])

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on all losses at once; the noise of a round comes from one generator."""
        before = self._look_before(data, task)
        if not self.settings.use_pfsm:
            loss = sgd.train(self, self.parameters(), self._plain_loss, data=data, task=task)
            return {"loss": loss} | before
        parts = Means()
        loss = sgd.train(self, self.parameters(), self._total(data, task, parts), data=data, task=task)
        return {"loss": loss} | parts.told("part") | before

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """The same losses for what stays: the selection with its heads, and batch norms."""
        loss = self._total(data, task, Means()) if self.settings.use_pfsm else self._plain_loss
        return newcomer.fit(self, loss, data=data, task=task)

    def _total(self, data: LocalData, task: Task, parts: Means) -> sgd.Loss:
        """The weighted sum of all losses (Eq. 15); its parts are noted."""
        chance, given = data.generator(task, "gumbel"), self.settings

        def total(x: Tensor, y: Tensor) -> Tensor:
            gce, lce, ent, dis = self._losses(x, y, chance)
            parts.note(len(y), gce=gce, lce=lce, ent=ent, dis=dis)
            return gce + given.lambda_lce * lce + given.lambda_ent * ent + given.lambda_dis * dis

        return total

    def _plain_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self(x), y)

    def _losses(self, x: Tensor, y: Tensor, chance: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four terms of Eq. 15, without their weights. Through log p, since p log p has no number at p = 0."""
        z = self.encoder(x)
        m = self.pick(z, draw_noise(z, chance))
        of_all, own, rest = self.head_g(z), self.head_p(z * m), self.head_u(z * (1 - m))
        log_g, log_p, log_u = (scores.log_softmax(1) for scores in (of_all, own, rest))
        entropy = (log_u.exp() * log_u).sum(1).mean()
        divergence = ((log_p.exp() - log_g.exp()) * (log_p - log_g)).sum(1).mean()
        return cross_entropy(of_all, y), cross_entropy(own, y), entropy, divergence

    def pick(self, z: Tensor, noise: Tensor | float = 0.0) -> Tensor:
        """The mask m of some features. A hard one is exactly 0 or 1, and has the gradient of the soft one."""
        settings = self.settings
        logits: Tensor = self.pfsm["select"](z) + noise
        soft = (logits / settings.tau).sigmoid()
        if settings.mask == "soft":
            return soft
        # Decided on the logit: the sigmoid of a small negative number is rounded to 0.5.
        hard = (logits >= settings.tau * log(settings.epsilon / (1 - settings.epsilon))).to(soft)
        return hard + (soft - soft.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Global and personal head together (Eq. 14)."""
        return self.views(x)["combined"]

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """Both heads, each alone and together; without noise."""
        z = self.encoder(x)
        of_all = self.head_g(z)
        if not self.settings.use_pfsm:
            return {"combined": of_all}
        own = self.head_p(z * self.pick(z))
        return {"combined": self._combine(of_all, own), "global": of_all, "personal": own}

    def _combine(self, of_all: Tensor, own: Tensor) -> Tensor:
        if self.settings.ensemble == "global_only":
            return of_all
        return of_all + own if self.settings.ensemble == "logit" else of_all.softmax(1) + own.softmax(1)

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """How much is picked, and how well what is picked and what is left tell the classes apart (Fig. 2, 7, 9)."""
        z = self._features(data)
        told = {"sparsity/trained": sparsity(z)} if len(z) else {}
        if self.settings.use_pfsm and len(z):
            m, y = self.pick(z), probe(data.test).y
            told["picked"] = float(in_double(m).mean())
            told |= {
                "fisher/picked": mean_fisher_score(z * m, y),
                "fisher/left": mean_fisher_score(z * (1 - m), y),
            }
        return told

    @torch.no_grad()
    def _features(self, data: LocalData) -> Tensor:
        self.eval()
        features = [self.encoder(x) for x, _ in probe(data.test).batches(256)]
        return torch.cat(features) if features else torch.empty(0)

    def _look_before(self, data: LocalData, task: Task) -> Metrics:
        """How sparse features are with the model as received; a newcomer's batch norm has nothing to say yet."""
        z = self._features(data) if self.settings.diagnose and not task.is_first else torch.empty(0)
        return {"sparsity/received": sparsity(z)} if len(z) else {}


def build_selection(features: int) -> nn.Sequential:
    """Logits for each component: Linear(d, d/2), ReLU, Linear(d/2, d)."""
    half = max(1, features // 2)
    layers = {"fc1": nn.Linear(features, half), "relu": nn.ReLU(), "fc2": nn.Linear(half, features)}
    return nn.Sequential(OrderedDict[str, nn.Module](layers))


def draw_noise(z: Tensor, chance: torch.Generator) -> Tensor:
    """G' − G'', each −log(−log U): drawn in float64, where no U is 1; one that is 0 becomes tiny."""
    uniform = torch.rand(2, *z.shape, generator=chance, dtype=torch.float64).clamp(min=1e-10)
    first, second = torch.unbind(-(-uniform.log()).log())
    return (first - second).to(z.dtype).to(z.device)


Server = Averaging
DIAGNOSTICS = {
    "views": "combined is what the method predicts with, by default both heads added; global is the shared head on all "
    "features; personal is the site's own on those it picks.",
    "loss": "What training minimises, all terms with their weights, in the last epoch of a site's training.",
    "part": "The four terms without their weights, over all epochs of the round: cross entropy of the global head "
    "(gce) and of the personal one (lce), minus the entropy of what is left (ent), divergence of the two heads (dis).",
    "picked": "Share of the features' components that is picked, mean over test samples (at most 2000, as below).",
    "fisher": "Mean Fisher score of the components of test samples after masking: spread between classes over spread "
    "within, of what is picked and of what is left. The first should be larger.",
    "sparsity": "Fraction of the features' components that are next to nothing beside the vector's length, on test "
    "samples: with the model as received, and after training it.",
}
"""What is told of a site's training, each number or family of numbers in a sentence; and who predicts."""
NEWCOMER = (
    "Selection, its two heads and all batch norms train ten times E epochs on the method's losses; encoder and "
    "global head are taken as they are."
)
SHOWS = ""
_PAPER: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 64, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _PAPER,
    "digits-five": {**_PAPER, "tau": 10.0, "lambda_lce": 10.0, "lambda_ent": 0.001, "lambda_dis": 10.0},
    "office-caltech-10": {**_PAPER, "tau": 1.0, "lambda_lce": 1.0, "lambda_ent": 0.001, "lambda_dis": 1.0},
    "domainnet": {**_PAPER, "tau": 1.0, "lambda_lce": 1.0, "lambda_ent": 0.001, "lambda_dis": 1.0},
}
"""The paper's optimiser with each data set's τ and λ (Table III). `paper` leaves τ and λ at our defaults, which are the
paper's for Office-Caltech-10 and DomainNet. The paper's networks are `--backbone digits_stack_head` and `alexnet_bn`.
"""
