"""Frozen tensors: they take no gradient and no step, and cross in the first model alone.

A frozen parameter becomes a buffer in its place: what a method trains, masks, draws near or sends are its parameters
and what `partition` lists, so no method has to know of this. A batch norm of which a running statistic is frozen
normalises by its statistics in training too, so that none of them moves; where only its scale or shift is frozen they
go on moving. Dropout goes on in frozen modules: it is no tensor.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from pfl_common.errors import SettingError

_MARK = "frozen_as"
"""On a layer: its frozen tensors by their own names, and their names in the participant. A copy of the layer has it
too.
"""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_MOST_SHOWN = 12


def freeze(module: nn.Module, names: Iterable[str]) -> None:
    """Let these modules and tensors, named by their paths, stand still; a name that there is not is an error."""
    for name in sorted(_resolve(module, names)):
        place, _, own = name.rpartition(".")
        _hold(module.get_submodule(place), own, name)


def find_frozen(module: nn.Module) -> dict[str, str]:
    """The names of all frozen tensors; beside each the one it is, or is a copy of, in its participant."""
    return {
        f"{place}.{own}" if place else own: name
        for place, layer in module.named_modules()
        for own, name in _marks(layer).items()
    }


def stands_still(layer: nn.Module) -> bool:
    """Whether a normalising layer has frozen statistics."""
    return not _marks(layer).keys().isdisjoint(_STATISTICS)


@torch.no_grad()
def align_copies(participant: nn.Module) -> None:
    """Give frozen tensors of a second model the values of those they are copies of: they were drawn otherwise."""
    values: Mapping[str, Tensor] = participant.state_dict()
    for name, original in find_frozen(participant).items():
        if name != original:
            values[name].copy_(values[original])


def expect_frozen_alike(participant: nn.Module, modules: Iterable[str], *, why: str) -> None:
    """Refuse to freeze one of several modules that a method cannot tell apart."""
    found = {name: frozenset(find_frozen(participant.get_submodule(name))) for name in modules}
    if len(set(found.values())) > 1:
        held = " and ".join(name for name in found if found[name])
        raise SettingError(
            f"--freeze names {held}, and not all of {', '.join(found)} alike",
            expected=f"all of them or none: {why}",
            advice="name the same parts of each",
        )


def _resolve(module: nn.Module, names: Iterable[str]) -> set[str]:
    every, found = tuple(module.state_dict()), set[str]()
    for name in names:
        below = {one for one in every if one == name or one.startswith(f"{name}.")}
        if not below:
            raise _unknown(name, every)
        found |= below
    for place, layer in module.named_modules():
        own = {f"{place}.{statistic}" for statistic in _STATISTICS} & set(every)
        if isinstance(layer, _NormBase) and own & found:
            found |= own
    return found


def _hold(layer: nn.Module, own: str, name: str) -> None:
    value = getattr(layer, own)
    if isinstance(value, nn.Parameter):
        delattr(layer, own)
        layer.register_buffer(own, value.detach())
    if own in _STATISTICS and not stands_still(layer):
        layer.register_forward_pre_hook(_count_as_before)
    vars(layer).setdefault(_MARK, {})[own] = name


def _count_as_before(layer: nn.Module, given: tuple[object, ...]) -> None:  # noqa: ARG001  # torch's form of a hook
    """Whoever puts the network into train mode does not mean a frozen layer. A hook, since it goes with copies."""
    if layer.training:
        layer.eval()


def _marks(layer: nn.Module) -> Mapping[str, str]:
    marks: Mapping[str, str] = vars(layer).get(_MARK, {})
    return marks


def _unknown(name: str, every: Iterable[str]) -> SettingError:
    """The nearest names, and the parts of the longest beginning that there is."""
    paths = {
        ".".join(parts[:end])
        for one in every
        for parts in [one.split(".")]
        for end in range(1, 1 + len(parts))
    }
    near = difflib.get_close_matches(name, sorted(paths), n=3)
    start = name
    while start and start not in paths:
        start = start.rpartition(".")[0]
    inside = f"{start}." if start else ""
    parts = sorted({path.removeprefix(inside).partition(".")[0] for path in paths if path.startswith(inside)})
    more = ", ..." if len(parts) > _MOST_SHOWN else ""
    known = f"{start or 'encoder and heads'} has {', '.join(parts[:_MOST_SHOWN])}{more}"
    return SettingError(
        f"--freeze names {name!r}, and neither the encoder nor a head has a module or tensor of that name",
        expected=(f"did you mean {' or '.join(map(repr, near))}? " if near else "") + known,
        advice="name a module or a tensor by its whole path, as encoder.stage1 or head.bias",
    )
