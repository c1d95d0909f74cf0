"""Fed-RoD: a shared head learns all classes alike, a personal one adds how often each occurs at the site.

Chen & Chao, On Bridging Generic and Personalized Federated Learning for Image Classification (ICLR 2022), the linear
version.

Rule: h = encoder(x), o = head_g(h). Encoder and head_g learn on the balanced softmax, CE(o + log n, y) with n_c the
site's training samples of class c; head_p learns on CE(o + head_p(h), y) with o and h held fixed. Both happen in one
step of SGD on the sum of the two losses, over E epochs: since neither reaches the other's parameters, that equals two
optimizers. The next encoder and head_g are the mean weighted by training samples. The prediction adds both heads;
head_g alone is the generic model.

Travels: encoder and head_g, less what `bn_policy` keeps. Stays: head_p, batch-norm statistics, counters.

Departures: from the paper, no hypernetwork. From the library that most comparisons used: head_p has first values of its
own instead of head_g's, and classes are counted on the whole training set, not on what a loader leaves of it. Two
other ports are not followed: one lets the personal loss into the encoder, one counts an absent class as 1.

Costs: bytes as FedAvg; a second head in memory, and its forward and backward pass.

Choice: for sites whose class frequencies differ, when a generic model for newcomers is wanted beside the personal ones.
Where sites differ in what their inputs look like rather than in how often classes occur, it has little to add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from pydantic import JsonValue
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.learning import sgd
from pfl_common.learning.arithmetic import in_double
from pfl_common.learning.balanced_softmax import balanced_cross_entropy
from pfl_common.learning.loss_means import Means
from pfl_common.learning.method import STRICT, Averaging, LocalData, Metrics, Participant, Settings, probe
from pfl_common.learning.partition import travelling
from pfl_common.spec.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """Fed-RoD has no symbols of its own."""


class Client(Participant):
    """A generic head that is shared, and a personal one on top of it."""

    heads = ("head_g", "head_p")
    head_g: nn.Module
    head_p: nn.Module
    whole_batch = ""

    def travels(self, phase: str) -> Iterable[str]:
        """Encoder and generic head."""
        return travelling(self, self.settings.bn_policy, ["encoder", "head_g"])

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on both losses at once."""
        counts, parts = data.counts, Means()

        def loss(x: Tensor, y: Tensor) -> Tensor:
            generic, own = self._losses(x, y, counts)
            parts.note(len(y), generic=generic, personal=own)
            return generic + own

        mean = sgd.train(self, self.parameters(), loss, data=data, task=task)
        return {"loss": mean} | parts.told("part")

    def _losses(self, x: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The balanced loss of encoder and head_g; the personal one, of which only head_p learns."""
        h = self.encoder(x)
        generic = self.head_g(h)
        own = generic.detach() + self.head_p(h.detach())
        return balanced_cross_entropy(generic, y, counts), cross_entropy(own, y)

    def forward(self, x: Tensor) -> Tensor:
        """Both heads added."""
        return self.views(x)["combined"]

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """The personal prediction and the generic one."""
        h = self.encoder(x)
        generic = self.head_g(h)
        return {"combined": generic + self.head_p(h), "global": generic}

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """How often the personal head changes the prediction."""
        views = [self.views(x) for x, _ in probe(data.test).batches(256)]
        changed = [view["combined"].argmax(1) != view["global"].argmax(1) for view in views]
        return {"changed": float(in_double(torch.cat(changed)).mean())} if changed else {}


Server = Averaging
DIAGNOSTICS = {
    "views": "combined adds both heads and is what the method predicts with; global is the shared head alone, the "
    "generic model.",
    "loss": "Balanced loss of the shared head and cross entropy of both heads together, added, in the last epoch of a "
    "site's training.",
    "part": "The same two, each by itself, over all epochs of the round: generic, from which encoder and shared head "
    "learn, and personal, from which the personal head learns.",
    "changed": "Fraction of test samples (at most 2000) for which the personal head makes the prediction another one.",
}
"""What is told of a site's training, each number or family of numbers in a sentence; and who predicts."""
NEWCOMER = (
    "Its personal head trains ten times E epochs on top of the generic one; encoder and generic head are taken as "
    "they are."
)
SHOWS = ""
_FEDCP: Mapping[str, JsonValue] = {"lr": 0.005, "momentum": 0.0, "batch": 10, "epochs": 1, "drop_last": True}
_DUALFED: Mapping[str, JsonValue] = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1}
PRESETS: Mapping[str, Mapping[str, JsonValue]] = {
    "paper": _DUALFED,
    "dualfed": _DUALFED,
    "fedcp": _FEDCP,
    "fedcp-resnet18": {**_FEDCP, "lr": 0.1},
    "repro": _FEDCP,
}
"""Optimisers of the papers that compare with Fed-RoD: DualFed's; FedCP's and GPFL's, for the CNN and for ResNet-18. The
code of these two drops a last batch that is not full; `repro` is that code.
"""
