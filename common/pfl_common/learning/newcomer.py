"""Fits what a method keeps at a site, for a site that comes after the run: what travels stands still.

A site that takes part learns in rounds, each with a fresh optimizer. So does a newcomer: ROUNDS times the E epochs of a
round, but on its own, towards the shared state as it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any  # Any: a layer whose type says less than is known of it

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pfl_common.learning import sgd
from pfl_common.spec.run import Task

if TYPE_CHECKING:
    from pfl_common.learning.method import LocalData, Participant

ROUNDS = 10
"""How many rounds' epochs a newcomer trains: its own part begins with first values and has no other chance."""
AT_ONCE = 256
"""Samples in one pass without gradients."""


def fit(  # noqa: PLR0913  # each call names the few words it needs
    participant: Participant,
    loss: sgd.Loss,
    *,
    data: LocalData,
    task: Task,
    parameters: Iterable[nn.Parameter] | None = None,
    epochs: int | None = None,
) -> dict[str, float]:
    """Train those of some parameters (of all, if none are named) that do not travel, ROUNDS times `epochs` epochs.

    Gives the last round's loss; nothing where there is nothing to train.
    """
    own = list_own(participant, task, parameters)
    count = participant.settings.epochs if epochs is None else epochs
    if not own or not count:
        return {}
    still, mean = _find_shared_norms(participant, task), float("nan")

    def held(x: Tensor, y: Tensor) -> Tensor:
        # Their statistics are everybody's: used as they came, and not moved.
        for layer in still:
            layer.eval()
        return loss(x, y)

    for turn in range(ROUNDS):
        first = turn * count
        mean = sgd.train(participant, own, held, data=data, task=task, epochs=count, first_epoch=first)
    return {"loss": mean}


@torch.no_grad()
def fill_statistics(participant: Participant, data: LocalData, task: Task) -> None:
    """Measure the statistics of those batch norms that stay, for the parameters as they are, in one pass.

    Each batch counts alike. A moving mean, which training keeps, would still remember first values and parameters of
    steps ago: a newcomer trains too little to forget them.
    """
    shared = set(participant.travels(task.phase))
    norms = [layer for name, layer in _list_norms(participant) if f"{name}.running_mean" not in shared]
    if not norms:
        return
    before = [layer.momentum for layer in norms]
    participant.eval()
    for layer in norms:
        layer.train()
        layer.momentum = None
        # From here on it counts batches anew; a layer that sees none keeps what it has.
        layer.num_batches_tracked.zero_()
    for x, _ in data.train.batches(AT_ONCE):
        if len(x) > 1:
            participant(x)
            participant.progress(0)
    for layer, momentum in zip(norms, before, strict=True):
        layer.momentum = momentum


def list_own(
    participant: Participant, task: Task, parameters: Iterable[nn.Parameter] | None = None
) -> list[nn.Parameter]:
    """Those of some parameters that stay at the site."""
    shared = set(participant.travels(task.phase))
    own = {id(value): value for name, value in participant.named_parameters() if name not in shared}
    wanted = own.values() if parameters is None else parameters
    return [value for value in wanted if id(value) in own]


def _find_shared_norms(participant: Participant, task: Task) -> list[_BatchNorm]:
    """Batch norms whose running statistics travel."""
    shared = set(participant.travels(task.phase))
    return [layer for name, layer in _list_norms(participant) if f"{name}.running_mean" in shared]


def _list_norms(participant: Participant) -> list[tuple[str, Any]]:
    """Batch norms that keep statistics, with their names; torch leaves their attributes optional."""
    layers = participant.named_modules()
    return [
        (n, layer) for n, layer in layers if isinstance(layer, _BatchNorm) and layer.running_mean is not None
    ]
