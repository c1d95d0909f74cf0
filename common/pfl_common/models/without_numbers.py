"""Builds networks that have shapes and no numbers, for whoever only wants to know what they would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any  # what a function of torch takes and gives

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextmanager
def without_numbers() -> Iterator[None]:
    """While open, tensors and layers are made on the device meta, and nothing is drawn for them."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Leaves draws out. Asked for one without numbers, torch would load its compiler, which takes a second."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if function is Tensor.normal_ or getattr(function, "__module__", "") == "torch.nn.init":
            filled = args[0] if args else named.get("tensor")
            if isinstance(filled, Tensor) and filled.is_meta:
                return filled
        return function(*args, **named)
