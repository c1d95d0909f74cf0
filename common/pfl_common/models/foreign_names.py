"""The names that a network's tensors may have in a file of weights: ours, torchvision's, or the bare network's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

from torch import nn

T = TypeVar("T")
HEADS = ("head", "head_g", "head_p", "head_u")
"""Heads by canonical name; a file's head is looked for in this order."""
_WRAPPER = re.compile(r"(?:module\.|_orig_mod\.)*")
"""What torch puts before all names of a network that was trained on several devices, or compiled."""
_OF_RESNET = (
    (r"^conv\.", "conv1."),
    (r"^bn\.", "bn1."),
    (r"^stage(\d)\.", r"layer\1."),
    (r"\.shortcut\.conv\.", ".downsample.0."),
    (r"\.shortcut\.bn\.", ".downsample.1."),
)
"""From the names in our residual networks to torchvision's."""
_OF_DENSENET = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..+)$")
"""Published files of densenets are older than the names in them."""


def settle_names(found: Mapping[str, T]) -> dict[str, T]:
    """A file's tensors without what wraps all of their names."""
    wrapper = _WRAPPER.match(min(found, default=""))
    if wrapper is not None and all(name.startswith(wrapper[0]) for name in found):
        found = {name.removeprefix(wrapper[0]): value for name, value in found.items()}
    return {_OF_DENSENET.sub(r"\1\2", name): value for name, value in found.items()}


def names_in_file(name: str, encoder: nn.Module) -> Iterator[str]:
    """What a file may call a tensor of a participant's encoder or of one of its heads, likeliest first."""
    part, _, rest = name.partition(".")
    yield name
    if part == "encoder":
        yield from _of_encoder(rest)
    else:
        yield from (f"{head}.{rest}" for head in HEADS)
        yield f"{_head_place(encoder)}.{rest}"


def _of_encoder(rest: str) -> Iterator[str]:
    # With a projector behind it the network is called `body`.
    for own in (rest, rest.removeprefix("body."), f"body.{rest}"):
        bare = own.removeprefix("network.")
        yield from (f"encoder.{own}", own, bare, _as_resnet(bare))


def _as_resnet(name: str) -> str:
    for ours, theirs in _OF_RESNET:
        name = re.sub(ours, theirs, name)
    return name


def _head_place(encoder: nn.Module) -> str:
    """Where torchvision's network had the layer that is the head; our residual networks' is called as in its."""
    body = getattr(encoder, "body", encoder)
    return str(getattr(body, "head_place", "fc"))
