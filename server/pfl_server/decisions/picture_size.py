"""Chooses the one size that the pictures of a run have at all sites."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from statistics import median_low

from pfl_common.spec.run import ClientId, Description
from pfl_server.decisions.weights_preprocessing import Prepared
from pfl_server.decisions.withheld_descriptions import hides_sizes

HEAVIEST = 100
"""One site's pictures count for at most so many times those of the site in the middle: a count is a site's own word."""
LONGEST_SIDE = 224
"""Larger pictures are brought to this, unless the operator names a size: what most networks were made for."""

Sites = Mapping[ClientId, Description]


def choose_size(sites: Sites, *, side: int, prepared: Prepared | None) -> tuple[int, int]:
    """Height and width: `side` if the operator names one, else as for the weights, else the most common size over all
    sites, capped.
    """
    if side:
        return side, side
    if prepared is not None:
        return prepared.size
    return cap(most_common(count_sizes(sites)))


def count_sizes(sites: Sites) -> Counter[tuple[int, int]]:
    """The number of pictures of each size at all sites."""
    each = [_sizes_of(description) for description in sites.values() if not hides_sizes(description)]
    counts: Counter[tuple[int, int]] = Counter()
    if not each:
        return counts
    most = HEAVIEST * median_low(own.total() for own in each)
    for own in each:
        total = own.total()
        counts.update(
            {size: count if total <= most else count * most // total for size, count in own.items()}
        )
    return counts


def _sizes_of(description: Description) -> Counter[tuple[int, int]]:
    # An older site does not count them: all of its pictures are taken to have the size it names.
    height, width = description.shape[-2:]
    told = description.sizes or ((height, width, description.samples or 1),)
    return Counter({(high, wide): count for high, wide, count in told})


def most_common(counts: Counter[tuple[int, int]]) -> tuple[int, int]:
    """The size most pictures have; of equally common ones the smaller, which costs less and invents nothing."""
    return min(counts, key=lambda size: (-counts[size], math.prod(size), size))


def cap(size: tuple[int, int]) -> tuple[int, int]:
    """The same shape of picture, at most `LONGEST_SIDE` long."""
    longest = max(size)
    if longest <= LONGEST_SIDE:
        return size
    height, width = (max(1, round(side * LONGEST_SIDE / longest)) for side in size)
    return height, width


def explain(sites: Sites, size: tuple[int, ...], *, side: int, prepared: Prepared | None) -> str:
    """The choice and its reason, in words for operator and sites."""
    chosen = f"{size[0]}x{size[1]} (height x width)"
    if side:
        return f"{chosen}, as --image-size says"
    if prepared is not None:
        return f"{chosen}, as for {prepared.source}; --image-size N chooses another"
    counts = count_sizes(sites)
    common = most_common(counts)
    share = f"the most common size, {counts[common]} of {counts.total()} pictures have it"
    if common == size:
        return f"{chosen}, {share}; --image-size N chooses another"
    return (
        f"{chosen}: {common[0]}x{common[1]} is {share}, and the longer side is brought to {LONGEST_SIDE}; "
        "--image-size N chooses another"
    )
