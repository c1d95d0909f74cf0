"""Holds back a fixed share of each class of the training samples, as validation part of a site that has none.

Which samples is drawn from the site's name, the class and the sample's place in it, never from a run's seed: what was
held back in one run is held back in all, whatever method trains. Samples of one group (a patient) go together, drawn
from the site's and the group's name. Nothing is written into the data folder.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from pfl_common.learning.method import Samples
from pfl_common.randomness import hashed


def hold_out(
    parts: dict[str, Samples],
    share: float,
    *,
    site: str,
    classes: Sequence[str],
    groups: Sequence[str] = (),
) -> dict[str, Samples]:
    """Move a share of the training part to the validation part, unless there are validation samples already.

    `groups` names the group of each training sample; a group is never in both parts. Empty: each sample is by itself.
    """
    if not share or len(parts["validation"]):
        return parts
    train = parts["train"]
    if groups:
        chosen = _draw_groups(train.y.tolist(), groups, share, site=site)
        held = torch.tensor([group in chosen for group in groups], dtype=torch.bool)
    else:
        held = _draw_samples(train.y, share, site, classes)
    return {**parts, "train": _keep(train, ~held), "validation": _keep(train, held)}


def _draw_samples(y: Tensor, share: float, site: str, classes: Sequence[str]) -> Tensor:
    held = torch.zeros(len(y), dtype=torch.bool)
    for number in sorted(set(y.tolist())):
        places = (y == number).nonzero().flatten()
        held[places[_draw(len(places), share, site, classes[number])]] = True
    return held


def _draw(count: int, share: float, *words: str) -> list[int]:
    """As many of a class as its share says, but of two or more at least one on either side."""
    ranked = sorted(range(count), key=lambda place: hashed.derive("hold out", *words, place))
    return ranked[: _count_wanted(count, share)]


def _count_wanted(count: int, share: float) -> int:
    return min(max(round(share * count), 1), count - 1)


def _draw_groups(y: Sequence[int], groups: Sequence[str], share: float, *, site: str) -> set[str]:
    """Whole groups, class by class, until each class has about its share; a class keeps a group to train on."""
    sizes: dict[str, Counter[int]] = defaultdict(Counter)
    for number, group in zip(y, groups, strict=True):
        sizes[group][number] += 1
    ranked = sorted(sizes, key=lambda group: (hashed.derive("hold out", site, "group", group), group))
    counts, have = Counter(y), Counter[int]()
    wanted = {number: _count_wanted(count, share) for number, count in counts.items()}
    held: set[str] = set()
    # The rarest class first: its few groups are chosen while all of them are free.
    for number in sorted(counts, key=lambda one: (counts[one], one)):
        for group in (name for name in ranked if sizes[name][number] and name not in held):
            own = sizes[group]
            # Not much more than its share of any class; but a class that has none so far gets one.
            fits = all(have[one] + own[one] / 2 <= wanted[one] for one in own) or not have[number]
            keeps = all(have[one] + own[one] < counts[one] for one in own)
            if have[number] < wanted[number] and fits and keeps:
                held.add(group)
                have += own
    return held


def _keep(samples: Samples, which: Tensor) -> Samples:
    return Samples(samples.x[which], samples.y[which])
