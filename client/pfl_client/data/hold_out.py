"""Holds back a fixed share of each class of the training samples, as validation part of a site that has none.

Which samples is drawn from the site's name, the class and the sample's place in it, never from a run's seed: what was
held back in one run is held back in all, whatever method trains. Nothing is written into the data folder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pfl_common.learning.method import Samples
from pfl_common.randomness import hashed


def hold_out(
    parts: dict[str, Samples], share: float, *, site: str, classes: Sequence[str]
) -> dict[str, Samples]:
    """Move a share of the training part to the validation part, unless there are validation samples already."""
    if not share or len(parts["validation"]):
        return parts
    train = parts["train"]
    held = torch.zeros(len(train), dtype=torch.bool)
    for number in sorted(set(train.y.tolist())):
        places = (train.y == number).nonzero().flatten()
        held[places[_draw(len(places), share, site, classes[number])]] = True
    return {**parts, "train": train.only(~held), "validation": train.only(held)}


def _draw(count: int, share: float, *words: str) -> list[int]:
    """As many of a class as its share says, but of two or more at least one on either side."""
    most = count - 1
    wanted = min(max(round(share * count), 1), most)
    ranked = sorted(range(count), key=lambda place: hashed.derive("hold out", *words, place))
    return ranked[:wanted]
