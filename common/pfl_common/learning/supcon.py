"""Supervised contrastive loss: pulls representations of one class together and those of different classes apart."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pfl_common.learning.arithmetic import in_float32


@in_float32
def supervised_contrast(features: Tensor, labels: Tensor, *, temperature: float) -> Tensor:
    """How badly the samples of a batch find others of their own class among all others (mean over the batch).

    For sample a with positives P(a), the other samples of its class, and s_ab = cos(u_a, u_b) / temperature:
    ℓ_a = −(1/|P(a)|) Σ_{b∈P(a)} [s_ab − log Σ_{c≠a} exp(s_ac)]. A sample without positives adds 0 to the sum
    and still counts in the mean.
    """
    directions = normalize(features, dim=1)
    similarities = directions @ directions.T / temperature
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    others = similarities.masked_fill(itself, -torch.inf)
    log_share = similarities - others.logsumexp(dim=1, keepdim=True)
    positive = (labels[:, None] == labels) & ~itself
    counts = positive.sum(dim=1).clamp(min=1)
    return -(log_share.masked_fill(~positive, 0.0).sum(dim=1) / counts).mean()
