"""The only importer of torchvision, which it makes work beside a torch without CUDA too.

Released torchvision wheels bring binary operators built for CUDA. Beside a CPU-only torch that binary does
not load. torchvision tolerates this, but while it is imported it describes two of those operators to torch by
name, and torch refuses to describe what nobody has declared. The transforms and networks we use never call
either, so declaring the two signatures, without an implementation, is enough. Where the binary loads, nothing
is declared.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
from functools import cache
from types import ModuleType

import torch

from pfl_common.errors import SettingError

_SIGNATURES = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision(
    module: str = "torchvision", *, wanted: str = "the backbone that is asked for is one of its networks"
) -> ModuleType:
    """Import torchvision, or one of its modules such as `torchvision.transforms.v2`; `wanted` is who asks for it."""
    if importlib.util.find_spec("torchvision") is None:
        raise SettingError(
            f"torchvision is not installed here, and {wanted}",
            expected="torchvision beside torch",
            advice="install the version of deploy/requirements.lock, or choose a backbone without 'torchvision:' "
            "and --augment none or flip",
        )
    _declared()
    return importlib.import_module(module)


def declared_operators() -> tuple[str, ...]:
    """Name the operators that exist as signatures only, because torchvision's binary did not load."""
    return _declared()[0]


# torch withdraws a declaration when its Library object goes, so the cache keeps that until the process ends.
@cache
def _declared() -> tuple[tuple[str, ...], torch.library.Library]:
    _load_binary()
    absent = tuple(name for name in _SIGNATURES if not hasattr(torch.ops.torchvision, name))
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call] # torch: no types
    for name in absent:
        library.define(_SIGNATURES[name])  # type: ignore[no-untyped-call] # torch: no types
    return absent, library


def _load_binary() -> None:
    """Try torchvision's binary before torchvision does: a declaration made first would collide with it."""
    package = importlib.util.find_spec("torchvision")
    if package is None:
        return
    binary = importlib.machinery.PathFinder.find_spec("_C", package.submodule_search_locations)
    if binary is None or binary.origin is None:
        return
    try:
        torch.ops.load_library(binary.origin)  # type: ignore[no-untyped-call] # torch: no types
    except OSError:
        return  # the expected case beside a CPU-only torch; the caller declares what is missing
