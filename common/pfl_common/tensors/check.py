"""An update is looked at before it counts: its shape, NaN and infinity, negative weights, its norm.

A site looks at its own before it sends, the coordinator at each that comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, sqrt

import torch
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Manifest
from pfl_common.tensors.fused import pair
from pfl_common.tensors.layout import Source, Stretch, Window, fit, lay_out, stretches
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.state import State
from pfl_common.tensors.update import SUM, WEIGHT

SMALL = 1 << 14
"""Numbers of a tensor that is looked through together with others: by itself the call would cost more than the look."""


def check_update(
    source: Source, manifest: Manifest, groups: Iterable[str], *, largest: float | None = None
) -> None:
    """Refuse an update that does not fit its manifest or would spoil a sum; it is read once, block by block.

    `largest` bounds the Euclidean norm of all values that are summed, as they were sent, without their weights.
    """
    places = lay_out(manifest, groups)
    fit(source.size, places)
    try:
        pair(places)
    except (TypeError, ValueError) as error:
        raise Refused("manifest", str(error)) from None
    window, square = Window(source), 0.0
    for stretch in stretches(places):
        norms = _look_through(window, stretch)
        square += sum(norm * norm for norm in norms) if stretch.whole.branch == SUM else 0.0
    if largest is not None and not sqrt(square) <= largest:
        raise Refused("norm", f"the update's norm is {sqrt(square):.6g}, the run takes at most {largest:.6g}")


def _look_through(window: Window, stretch: Stretch) -> list[float]:
    """The norms of its blocks; numbers nobody can use are refused by the name of the tensor that holds them."""
    try:
        return [_examine(stretch.whole.entry.name, block) for block in window.blocks(stretch.whole)]
    except Refused:
        for part in stretch.parts:
            for block in window.blocks(part):
                _examine(part.entry.name, block)
        raise


def check_finite(state: State) -> None:
    """Refuse NaN, infinity, negative weights and truth values that are neither 0 nor 1."""
    for names, values in _gathered(state):
        try:
            _examine_all(names[0], values)
        except Refused:
            for name in names:
                _examine_all(name, state[name])
            raise


def find_infinite(values: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with NaN or infinity; None if there is none. Large tensors are looked through in blocks,
    small ones in a copy of all those of a type and branch together.
    """
    for names, gathered in _gathered(values):
        if not _is_finite(gathered):
            return next(name for name in names if not _is_finite(values[name]))
    return None


def _examine_all(name: str, value: Tensor) -> None:
    for block in _blocks(value):
        _examine(name, block)


def _is_finite(value: Tensor) -> bool:
    return all(_measure(block) is not None for block in _blocks(value))


def _gathered(values: Mapping[str, Tensor]) -> Iterator[tuple[list[str], Tensor]]:
    """Tensors to be looked through; small ones of a type and branch together, as one copy of them."""
    small: dict[object, list[str]] = {}
    for name, value in values.items():
        if value.numel() >= SMALL:
            yield [name], value
        else:
            small.setdefault((value.dtype, value.device, name.partition(".")[0]), []).append(name)
    for names in small.values():
        yield names, torch.cat([values[name].detach().reshape(-1) for name in names])


def _blocks(value: Tensor) -> Iterator[Tensor]:
    numbers = value.detach().reshape(-1)
    for start in range(0, len(numbers), BLOCK):
        yield numbers[start : start + BLOCK]


def _examine(name: str, block: Tensor) -> float:
    """Refuse numbers nobody can use; gives the norm of floating-point ones."""
    if block.dtype == torch.bool:
        if int(block.view(torch.uint8).max()) > 1:
            raise Refused("not_finite", f"{name!r} holds a truth value that is neither 0 nor 1")
        return 0.0
    norm = _measure(block) if block.is_floating_point() else 0.0
    if norm is None:
        raise Refused("not_finite", f"{name!r} holds NaN or infinity: the site's training diverged")
    if name.startswith(f"{WEIGHT}.") and bool(block.min() < 0):
        raise Refused("weight", f"{name!r} holds a negative weight")
    return norm


def _measure(block: Tensor) -> float | None:
    """The Euclidean norm of some numbers; None if one of them is NaN or infinite."""
    # One pass that is as fast as memory; only a norm that is not finite is worth a closer look.
    norm = float(torch.linalg.vector_norm(block, dtype=torch.promote_types(block.dtype, torch.float32)))
    if isfinite(norm):
        return norm
    low, high = block.aminmax()
    if not (isfinite(low) and isfinite(high)):
        return None
    # Squares overflow long before numbers do.
    return float(torch.linalg.vector_norm(block, dtype=torch.float64))
