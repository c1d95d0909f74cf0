"""How a training step computes: its number type, and in how many parts a batch passes through the network.

A run of another precision than float32 passes its batches through the network in that type (torch's autocast).
Parameters, their gradients, the optimizer and all that travels stay float32. Parts of a loss that subtract nearly equal
numbers or take exponentials of distances say `in_float32`: with 8 bits of precision nothing would be left of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import ParamSpec, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from pfl_common.learning.halved_batch import in_parts
from pfl_common.spec.rules import Precision

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
P = ParamSpec("P")
R = TypeVar("R")

FIRST_SCALE = 2.0**16
"""What a loss is multiplied by before its gradient is taken in float16, whose smallest number is 6e-8."""
HALF_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Arithmetic:
    """The arithmetic of one participant; the session that does a task may change `parts` before it begins."""

    def __init__(self, precision: Precision = "float32", parts: int = 1) -> None:
        self.precision, self.parts = precision, parts
        self._scale = FIRST_SCALE

    def begin(self) -> None:
        """A loop over batches begins: as of an optimizer, nothing is remembered of the one before."""
        self._scale = FIRST_SCALE

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """While open, networks compute in the run's precision."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(device.type, dtype=HALF_TYPES[self.precision])

    def gradients(
        self, loss: Loss, parameters: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """A batch's loss and its gradient by each parameter; None by one that it does not depend on."""
        return in_parts(partial(self._differentiate, loss, parameters), x, y, self.parts)

    def _differentiate(
        self, loss: Loss, parameters: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        with self.autocast(x.device):
            value = loss(x, y)
        if self.precision != "float16":
            return value, list(torch.autograd.grad(value, parameters, allow_unused=True))
        return value, self._differentiate_scaled(value, parameters)

    def _differentiate_scaled(self, value: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradient of a scaled loss. Where it overflows it is taken again with a smaller scale: no batch is lost.

        A loss that is infinite itself is let through, so that its training is seen to diverge.
        """
        while True:
            scaled: Sequence[Tensor | None] = torch.autograd.grad(
                value * self._scale, parameters, allow_unused=True, retain_graph=True
            )
            if self._scale <= 1 or not value.isfinite() or _are_finite(scaled):
                return [None if slope is None else slope / self._scale for slope in scaled]
            self._scale /= 2


def known(slopes: Sequence[Tensor | None]) -> list[Tensor]:
    """The gradient of a loss that depends on every parameter."""
    found = [slope for slope in slopes if slope is not None]
    if len(found) < len(slopes):
        raise RuntimeError(f"the loss does not depend on {len(slopes) - len(found)} of its parameters")
    return found


def in_float32(function: Callable[P, R]) -> Callable[P, R]:
    """Compute a part of a loss in float32 whatever the run's precision is; without another nothing changes."""

    @wraps(function)
    def widened(*args: P.args, **named: P.kwargs) -> R:
        device = next(one.device.type for one in args if isinstance(one, Tensor))
        if not torch.is_autocast_enabled(device):
            return function(*args, **named)
        wide = [widen(one) if isinstance(one, Tensor) else one for one in args]
        with torch.autocast(device, enabled=False):
            return cast(Callable[..., R], function)(*wide, **named)

    return widened


def widen(value: Tensor) -> Tensor:
    """Numbers of half a float32's size as float32; others as they are."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def in_double(value: Tensor) -> Tensor:
    """The same numbers in float64, for sums over many; on the processor where their own device (MPS) has no float64."""
    return value.cpu().double() if value.device.type == "mps" else value.double()


def _are_finite(slopes: Sequence[Tensor | None]) -> bool:
    return all(bool(slope.isfinite().all()) for slope in slopes if slope is not None)
