"""Holds back a fixed share of each class of the training samples, as validation part of a site that has none.

Which samples is drawn from the site's name, the class and the sample's place in it, never from a run's seed: what was
held back in one run is held back in all, whatever method trains. Samples of one group (a patient) go together, drawn
from the site's and the group's name. Nothing is written into the data folder.

Who says the share:
    the run's specification, or the site with `--validation`: a class gives its share, rounded; one that is too small
        for a sample gives none; a site that would hold back fewer than `LEAST` samples in all holds back none
    a comparison that chooses settings: of a class of two or more at least one sample on either side
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pfl_common.learning.method import Samples
from pfl_common.randomness import seeded_draws

LEAST = 10
"""Held back samples of a site: with fewer one sample would be more than a tenth of the accuracy, and training loses
what it needs most.
"""


def hold_out(  # noqa: PLR0913  # how much, of what, and what belongs together
    parts: dict[str, Samples],
    share: float,
    *,
    site: str,
    classes: Sequence[str],
    groups: Sequence[str] = (),
    spare_small: bool = False,
) -> dict[str, Samples]:
    """Move a share of the training part to the validation part, unless there are validation samples already.

    `groups` names the group of each training sample; a group is never in both parts. Empty: each sample is by itself.
    With `spare_small`, classes and sites that are too small keep all their samples for training.
    """
    if not share or len(parts["validation"]):
        return parts
    train = parts["train"]
    counts = Counter(train.y.tolist())
    wanted = {number: _count(count, share, spare_small=spare_small) for number, count in counts.items()}
    if groups:
        chosen = _draw_groups(train.y.tolist(), groups, wanted, site=site)
        held = torch.tensor([group in chosen for group in groups], dtype=torch.bool)
    else:
        held = _draw_samples(train.y, wanted, site, classes)
    if spare_small and int(held.sum()) < LEAST:
        return parts
    return {**parts, "train": train.only(~held), "validation": train.only(held)}


def _count(count: int, share: float, *, spare_small: bool) -> int:
    """How many of a class are held back."""
    wanted = round(share * count)
    return min(wanted if spare_small else max(wanted, 1), count - 1)


def _draw_samples(y: Tensor, wanted: Mapping[int, int], site: str, classes: Sequence[str]) -> Tensor:
    held = torch.zeros(len(y), dtype=torch.bool)
    for number in sorted(wanted):
        places = (y == number).nonzero().flatten()
        held[places[_draw(len(places), wanted[number], site, classes[number])]] = True
    return held


def _draw(count: int, wanted: int, *words: str) -> list[int]:
    ranked = sorted(range(count), key=lambda place: seeded_draws.derive("hold out", *words, place))
    return ranked[:wanted]


def _draw_groups(
    y: Sequence[int], groups: Sequence[str], wanted: Mapping[int, int], *, site: str
) -> set[str]:
    """Whole groups, class by class, until each class has about its share; a class keeps a group to train on."""
    sizes: dict[str, Counter[int]] = defaultdict(Counter)
    for number, group in zip(y, groups, strict=True):
        sizes[group][number] += 1
    ranked = sorted(sizes, key=lambda group: (seeded_draws.derive("hold out", site, "group", group), group))
    counts, have = Counter(y), Counter[int]()
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
