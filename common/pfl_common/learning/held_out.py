"""Holds out a part of a site's training data, to weigh models on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from pfl_common.errors import TooFewSamples
from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.randomness import generators

AT_ONCE = 256
"""Samples in one pass without gradients."""


def hold_out(data: LocalData, share: float) -> tuple[LocalData, Samples]:
    """The data to train on, and the share of the training samples that is held out: at least one.

    Drawn once for each site: in every round it is the same part, so no model is weighed on what it was trained on.
    """
    count = len(data.train)
    if count < 2:
        raise TooFewSamples(
            f"{count} training sample at this site",
            expected="at least 2, of which one is held out to weigh other sites' models on",
            advice="give this site more data, or choose a method that holds nothing out (pfl-server --list-methods)",
        )
    order = torch.randperm(count, generator=generators.generator(data.seed, data.site, "validation"))
    held_out = max(1, floor(share * count))
    return replace(data, train=data.train.only(order[held_out:])), data.train.only(order[:held_out])


@torch.no_grad()
def loss_with(participant: Participant, values: Mapping[str, Tensor], samples: Samples) -> float:
    """The mean cross entropy the participant would have with these values in place of its own, in evaluation mode."""
    participant.eval()
    total = 0.0
    for x, y in samples.batches(AT_ONCE):
        scores = functional_call(participant, dict(values), (x,))
        total += float(cross_entropy(scores, y, reduction="sum"))
        participant.progress(0)
    return total / len(samples)
