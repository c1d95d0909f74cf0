"""Holds back a fixed share of each class of the training samples, as validation part of a site that has none.

Which samples is drawn from the site's name, the class and the sample's place in it, never from a run's seed: what was
held back in one run is held back in all, whatever method trains. Nothing is written into the data folder.

Who says the share:
    the run's specification, or the site with `--validation`: a class gives its share, rounded; one that is too small
        for a sample gives none; a site that would hold back fewer than `LEAST` samples in all holds back none
    a comparison that chooses settings: of a class of two or more at least one sample on either side
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pfl_common.learning.method import Samples
from pfl_common.randomness import hashed

LEAST = 10
"""Held back samples of a site: with fewer one sample would be more than a tenth of the accuracy, and training loses
what it needs most.
"""


def hold_out(
    parts: dict[str, Samples], share: float, *, site: str, classes: Sequence[str], spare_small: bool = False
) -> dict[str, Samples]:
    """Move a share of the training part to the validation part, unless there are validation samples already.

    With `spare_small`, classes and sites that are too small keep all their samples for training.
    """
    if not share or len(parts["validation"]):
        return parts
    train = parts["train"]
    held = torch.zeros(len(train), dtype=torch.bool)
    for number in sorted(set(train.y.tolist())):
        places = (train.y == number).nonzero().flatten()
        wanted = _count(len(places), share, spare_small=spare_small)
        held[places[_draw(len(places), wanted, site, classes[number])]] = True
    if spare_small and int(held.sum()) < LEAST:
        return parts
    return {**parts, "train": train.only(~held), "validation": train.only(held)}


def _count(count: int, share: float, *, spare_small: bool) -> int:
    """How many of a class are held back."""
    wanted = round(share * count)
    return min(wanted if spare_small else max(wanted, 1), count - 1)


def _draw(count: int, wanted: int, *words: str) -> list[int]:
    ranked = sorted(range(count), key=lambda place: hashed.derive("hold out", *words, place))
    return ranked[:wanted]
