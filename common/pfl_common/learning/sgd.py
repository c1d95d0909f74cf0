"""Plain SGD over a site's data: the loop every paper means by "E local epochs"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from pfl_common.halves import LocalData, Participant, Tail
from pfl_common.partition import has_batch_norm
from pfl_common.run import Task

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def train(  # noqa: PLR0913  # two words more for methods with a second loop; each call names them
    participant: Participant,
    parameters: Iterable[nn.Parameter],
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
    settings, chosen = participant.settings, list(parameters)
    optimizer = torch.optim.SGD(
        chosen, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    participant.train()
    mean = float("nan")
    with _only(participant, chosen):
        for epoch in range(first_epoch, first_epoch + (settings.epochs if epochs is None else epochs)):
            mean = _epoch(participant, optimizer, loss, batches=_batches(participant, data, task, epoch))
    return mean


def _batches(
    participant: Participant, data: LocalData, task: Task, epoch: int
) -> Iterable[tuple[Tensor, Tensor]]:
    settings, fragile = participant.settings, has_batch_norm(participant)
    tail: Tail = "drop" if settings.drop_last else settings.tail
    # Statistics of a few samples say little and cost a point or two of accuracy; elsewhere a small batch does no harm.
    if tail == "fold" and not fragile:
        tail = "keep"
    for x, y in data.batches(task, epoch, size=settings.batch, tail=tail):
        # The variance of one sample is not defined: a batch-norm model leaves a last batch of one out.
        if not (fragile and len(y) == 1):
            yield x, y


def _epoch(
    participant: Participant,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    *,
    batches: Iterable[tuple[Tensor, Tensor]],
) -> float:
    total, seen = torch.zeros((), dtype=torch.float64), 0
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        value = loss(x, y)
        value.backward()  # type: ignore[no-untyped-call]  # torch leaves backward unannotated
        optimizer.step()
        total = total + value.detach().double() * len(y)  # not in place: it follows the loss to its device
        seen += len(y)
        participant.progress(len(y))
    return float(total / seen) if seen else float("nan")


class _only:
    """While open, only the chosen parameters take gradients; afterwards each is as it was."""

    def __init__(self, module: nn.Module, chosen: list[nn.Parameter]) -> None:
        self._before = [(p, p.requires_grad) for p in module.parameters()]
        self._chosen = {id(p) for p in chosen}

    def __enter__(self) -> None:
        for parameter, _ in self._before:
            parameter.requires_grad_(id(parameter) in self._chosen)

    def __exit__(self, *_: object) -> None:
        for parameter, before in self._before:
            parameter.requires_grad_(before)
            parameter.grad = None
