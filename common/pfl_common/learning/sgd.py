"""Plain SGD over a site's data: the loop that papers mean by "E local epochs"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pfl_common.learning.arithmetic import Loss as Loss  # methods take it from here
from pfl_common.learning.arithmetic import in_double
from pfl_common.learning.descent import Descent
from pfl_common.learning.descent import Groups as Groups
from pfl_common.learning.partition import has_batch_norm
from pfl_common.spec.run import Task

if TYPE_CHECKING:
    from pfl_common.learning.method import Batch, LocalData, Participant, Tail


def train(  # noqa: PLR0913  # two words more for methods with a second loop; each call names them
    participant: Participant,
    parameters: Groups,
    loss: Loss,
    *,
    data: LocalData,
    task: Task,
    epochs: int | None = None,
    first_epoch: int = 0,
) -> float:
    """Run epochs of SGD on some parameters with a fresh optimizer; gives the mean loss of the last epoch.

    `first_epoch` numbers the shuffles, so that a second loop in one round sees orders of its own. Parameters
    that are not named are not touched: their gradients are switched off while the loop runs.
    """
    settings = participant.settings
    descent = Descent(
        parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    moving = descent.parameters

    def step(x: Tensor, y: Tensor) -> Tensor:
        if not moving:  # all of it is frozen: the loss is measured all the same
            return loss(x, y)
        value, slopes = participant.arithmetic.gradients(loss, moving, x, y)
        descent.step(slopes)
        return value

    with only(participant, moving):
        return repeat(participant, step, data=data, task=task, epochs=epochs, first_epoch=first_epoch)


def repeat(  # noqa: PLR0913  # each call names the few words it needs
    participant: Participant,
    step: Loss,
    *,
    data: LocalData,
    task: Task,
    epochs: int | None = None,
    first_epoch: int = 0,
    size: int | None = None,
    tail: Tail | None = None,
) -> float:
    """Hand each batch of some epochs to `step`, with the network in train mode; gives the last epoch's mean loss.

    For methods that step in a way of their own: `step` moves what it wants and returns the batch's loss. `size` and
    `tail` replace the settings' batch and what becomes of a last batch that is not full.
    """
    epochs = participant.settings.epochs if epochs is None else epochs
    participant.train()
    participant.arithmetic.begin()
    mean = float("nan")
    for epoch in range(first_epoch, first_epoch + epochs):
        total, seen = torch.zeros((), dtype=torch.float64), 0
        for x, y in _batches(participant, data, task, epoch=epoch, size=size, tail=tail):
            value = step(x, y)
            # Not in place: the sum follows the loss to its device.
            total, seen = total + in_double(value.detach()) * len(y), seen + len(y)
            participant.progress(len(y))
        mean = float(total / seen) if seen else float("nan")
    return mean


def _batches(  # noqa: PLR0913
    participant: Participant,
    data: LocalData,
    task: Task,
    *,
    epoch: int,
    size: int | None,
    tail: Tail | None,
) -> Iterator[Batch]:
    settings, fragile = participant.settings, has_batch_norm(participant)
    tail = tail or ("drop" if settings.drop_last else settings.tail)
    # Statistics of a few samples say little and cost a point or two of accuracy; elsewhere a small batch does no harm.
    if tail == "fold" and not fragile:
        tail = "keep"
    for x, y in data.batches(task, epoch, size=size or settings.batch, tail=tail):
        # The variance of one sample is not defined: a batch-norm model leaves a last batch of one out.
        if not (fragile and len(y) == 1):
            yield x, y


@contextmanager
def only(module: nn.Module, chosen: Iterable[nn.Parameter]) -> Iterator[None]:
    """While open, only the chosen parameters take gradients; afterwards each is as it was, and none has a gradient."""
    before, wanted = [(p, p.requires_grad) for p in module.parameters()], {id(p) for p in chosen}
    for parameter, _ in before:
        parameter.requires_grad_(id(parameter) in wanted)
    try:
        yield
    finally:
        for parameter, was in before:
            parameter.requires_grad_(was)
            parameter.grad = None
