"""Fits what a method keeps at a site, for a site that comes after the run: what travels stands still.

A site that takes part learns in rounds, each with a fresh optimizer. So does a newcomer: ROUNDS times the E epochs of a
round, but on its own, towards the shared state as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pfl_common.learning import sgd
from pfl_common.spec.run import Task

if TYPE_CHECKING:
    from pfl_common.learning.method import LocalData, Participant

ROUNDS = 10
"""How many rounds' epochs a newcomer trains: its own part begins with first values and has no other chance."""


def _nothing() -> None:
    """A round needs no preparation."""


def fit(  # noqa: PLR0913  # each call names the few words it needs
    participant: Participant,
    loss: sgd.Loss,
    *,
    data: LocalData,
    task: Task,
    parameters: Iterable[nn.Parameter] | None = None,
    epochs: int | None = None,
    begin: Callable[[], None] = _nothing,
) -> dict[str, float]:
    """Train those of some parameters (of all, if none are named) that do not travel, ROUNDS times `epochs` epochs.

    `begin` is called before each round. Gives the last round's loss; nothing where there is nothing to train.
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
        begin()
        first = turn * count
        mean = sgd.train(participant, own, held, data=data, task=task, epochs=count, first_epoch=first)
    return {"loss": mean}


def list_own(
    participant: Participant, task: Task, parameters: Iterable[nn.Parameter] | None = None
) -> list[nn.Parameter]:
    """Those of some parameters that stay at the site."""
    shared = set(participant.travels(task.phase))
    own = {id(value): value for name, value in participant.named_parameters() if name not in shared}
    wanted = own.values() if parameters is None else parameters
    return [value for value in wanted if id(value) in own]


def _find_shared_norms(participant: Participant, task: Task) -> list[nn.Module]:
    """Batch norms whose running statistics travel."""
    shared = set(participant.travels(task.phase))
    layers = participant.named_modules()
    return [
        layer for name, layer in layers if isinstance(layer, _BatchNorm) and f"{name}.running_mean" in shared
    ]
