"""torchvision's published weights by its own names: which network they are for, where their file is, and how pictures
were prepared for them.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlparse

import torch

from pfl_common.errors import SettingError
from pfl_common.models.torchvision_import import import_torchvision
from pfl_common.models.torchvision_networks import PREFIX

_HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Published:
    """Weights that torchvision knows."""

    name: str
    backbone: str
    """The network they are for, as a run names it."""
    url: str
    size: tuple[int, int]
    """Height and width of the pictures the network was made for."""
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    """Of each channel, for values from 0 to 1."""

    @property
    def file(self) -> Path:
        """Where torchvision keeps the file, and looks for it first."""
        return Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(self.url).path).name

    @property
    def hash_start(self) -> str | None:
        """The first digits of the file's SHA-256, as its name says them."""
        found = re.search(r"-([a-f0-9]{8,})\.", self.file.name)
        return found[1] if found else None


def is_name(text: str) -> bool:
    """Whether a text has the form of such a name."""
    return re.fullmatch(r"\w+_Weights\.\w+", text) is not None


def find_published(name: str) -> Published:
    """Weights by their name, `ResNet18_Weights.IMAGENET1K_V1`; a wrong one is an error with those near it."""
    known = _list()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        raise SettingError(
            f"torchvision has no weights {name!r} of a classification network",
            expected=f"one of its {len(known)}"
            + (f"; did you mean {' or '.join(map(repr, near))}?" if near else ""),
            advice="their names are those of torchvision's documentation, as ResNet18_Weights.IMAGENET1K_V1; "
            "or name a file",
        )
    return _describe(*known[name])


@cache
def _list() -> dict[str, tuple[str, str]]:
    """For each name the network and torchvision's own name of the member."""
    return dict(_each())


def _each() -> Iterator[tuple[str, tuple[str, str]]]:
    models = import_torchvision("torchvision.models")
    for network in models.list_models(module=models):
        members = models.get_model_weights(network)
        for member in members.__members__:
            yield f"{members.__name__}.{member}", (network, member)


def _describe(network: str, member: str) -> Published:
    models = import_torchvision("torchvision.models")
    weights = models.get_model_weights(network)[member]
    prepared = weights.transforms()
    side = tuple(prepared.crop_size)
    mean, deviation = tuple(prepared.mean), tuple(prepared.std)
    made = inspect.signature(
        inspect.unwrap(models.get_model_builder(network)), eval_str=True
    ).return_annotation
    if "transform_input" in inspect.signature(made).parameters:
        # With its own weights such a network first turns these pictures back into what it was trained with.
        mean, deviation = _HALF, _HALF
    return Published(
        f"{type(weights).__name__}.{weights.name}",
        f"{PREFIX}{network}",
        weights.url,
        (side[0], side[-1]),
        mean,
        deviation,
    )
