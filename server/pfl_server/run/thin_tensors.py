"""Tensors that have their shape and next to no memory, for a rehearsal, which computes only to learn shapes.

Neighbours share their numbers: element (i, j) of a thin matrix is number i + j of a short vector. So its rows differ,
as those of a first model do, and what is computed from it stays as tame as with the whole. Nobody may write into one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor, nn

from pfl_common.learning.arithmetic import Arithmetic, Loss
from pfl_common.learning.halved_batch import Slopes
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Up, Weighted

SMALL = 1 << 14
"""Tensors of no more numbers stay as they are."""

Module = TypeVar("Module", bound=nn.Module)


def thin(value: Tensor) -> Tensor:
    """A tensor of the same type and shape that holds no more than its first numbers."""
    if value.numel() <= SMALL:
        return value
    held = sum(value.shape) - value.dim() + 1
    return value.detach().reshape(-1)[:held].clone().as_strided(value.shape, (1,) * value.dim())


def thin_state(state: State) -> State:
    """The same names with thin tensors; what is kept by reference stays kept."""
    return State({name: thin(value) for name, value in state.items()}, kept=state.kept)


def thin_update(up: Up) -> Up:
    """The same update with thin tensors."""
    summed = {name: Weighted(thin(one.value), thin(one.weight)) for name, one in up.summed.items()}
    return Up(summed, thin_state(up.shown))


def thin_out(module: nn.Module) -> None:
    """Let a module's numbers go, tensor by tensor."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = thin(tensor.data)


def copy_whole(module: Module) -> Module:
    """A copy whose tensors all have memory of their own again and can be trained."""
    twin = copy.deepcopy(module)
    for tensor in (*twin.parameters(), *twin.buffers()):
        tensor.data = tensor.data.contiguous()
    return twin


class SparingArithmetic(Arithmetic):
    """Makes each gradient as in training, and lets most of it go before it makes the next."""

    def gradients(
        self, loss: Loss, parameters: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, Slopes]:
        """The loss, and thin gradients."""
        hooks = [
            one.register_hook(thin)  # type: ignore[no-untyped-call]  # torch's
            for one in parameters
            if one.requires_grad
        ]
        try:
            return super().gradients(loss, parameters, x, y)
        finally:
            for hook in hooks:
                hook.remove()
