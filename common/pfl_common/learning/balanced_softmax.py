"""Balanced softmax: a cross entropy that does not learn how frequent the classes are at a site."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

from pfl_common.learning.arithmetic import in_float32


@in_float32
def balanced_cross_entropy(scores: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """−log [ n_y e^{o_y} / Σ_c n_c e^{o_c} ] = CE(o + log n, y), mean over the batch, for n_c samples of class c.

    A class that does not occur (n_c = 0) gets log 0 = −∞: probability 0, gradient 0, and no NaN, since
    `cross_entropy` never multiplies by what the label does not name.
    """
    return cross_entropy(scores + counts.to(scores).log(), labels)
