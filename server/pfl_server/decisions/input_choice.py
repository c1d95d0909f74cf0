"""Chooses how raw samples become a network's input, alike at all sites: one range, one standardisation; how large
pictures are is chosen by `picture_size`.

Each follows from the descriptions alone, summed in site order: who came first changes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pfl_common.errors import SettingError, nearest
from pfl_common.spec.augmentation import Steps
from pfl_common.spec.data_description import FEWEST_SUMMED, WHITEST
from pfl_common.spec.run import NOT_SUMMED, ClientId, Description, Moments
from pfl_server.decisions import picture_size, text_choice
from pfl_server.decisions.weights_preprocessing import Prepared

SAME_NUMBER = 1e-14
"""Of the square of its mean: a feature of smaller variance is one number over and over, up to rounding."""
LOST = 16
"""A range so many times wider than a site's own leaves it 16 of 256 grey levels."""
PER_PICTURE = "per-picture"

Standardise: TypeAlias = Literal["agreed", "none"]
Normalise: TypeAlias = Literal["none", "half", "imagenet", "cifar100", "agreed"]
Sites: TypeAlias = Mapping[ClientId, Description]


@dataclass(frozen=True)
class Wish:
    """The operator's choices; an empty field is chosen from the data."""

    backbone: str = ""
    image_size: int = 0
    encoder_projector: bool = False
    pixel_range: str = "auto"
    standardise: Standardise = "agreed"
    words: tuple[str, ...] = ()
    """The list by which texts are numbered."""
    length: int = 0
    """Words of a text."""
    prepared: Prepared | None = None
    """How pictures were prepared for the weights that the run begins from."""
    normalise: Normalise = "none"
    """How the channels of pictures are scaled."""
    augment: str | Steps = "none"
    """How training pictures are changed: a preset, or a list."""
    fewest_sites: int = 1
    """Sites that have to tell a word or a category for the run to know it."""


@dataclass(frozen=True)
class Range:
    """Raw values from `low` to `high` are scaled to 0..1; if both are 0 they stay as they are."""

    low: float = 0.0
    high: float = 0.0
    per_picture: bool = False


def parse_range(text: str) -> Range | None:
    """Read `auto` (None: as the sites' data say), `LOW..HIGH` or `per-picture`."""
    if text == "auto":
        return None
    if text == PER_PICTURE:
        return Range(per_picture=True)
    low, dots, high = text.partition("..")
    if dots and all(re.fullmatch(r"[+-]?\d+(\.\d+)?", end.strip()) for end in (low, high)):
        found = Range(float(low), float(high))
        if found.low < found.high and math.isfinite(found.high - found.low):
            return found
    raise SettingError(
        f"the pixel range is {text!r}",
        expected=f"LOW..HIGH with the smaller number first, or a word; {nearest(text, ('auto', PER_PICTURE))}",
        advice="for example --pixel-range 0..4095",
    )


def choose_range(sites: Sites, wish: Wish) -> Range:
    """Which raw values are black and white: of 16 bits and floats only, pictures in bytes say it themselves."""
    values = {description.values for description in sites.values()}
    if values <= {"bytes", "numbers"}:
        return Range()
    if (wished := parse_range(wish.pixel_range)) is not None:
        return wished
    if "wide" in values:
        wide = [one for one in sites.values() if _tells_range(one)]
        # Where nobody tells a range, 16 bits have one of their own.
        return Range(
            min((one.low for one in wide), default=0.0), max((one.high for one in wide), default=WHITEST)
        )
    return {"unit": Range(0.0, 1.0), "byte_floats": Range(0.0, 255.0)}.get(min(values), Range())


def _tells_range(one: Description) -> bool:
    """Whether a site with pictures of 16 bits tells its smallest and largest value."""
    return one.values == "wide" and (one.low, one.high) != (0.0, 0.0)


def agree_moments(sites: Sites) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each feature over the training parts of all sites; empty if a site did not sum its own."""
    own = [description.moments for _, description in sorted(sites.items())]
    told = [moments for moments in own if moments is not None and moments != NOT_SUMMED]
    if not told or None in own:
        return (), ()
    features = max(len(moments.sums) for moments in told)
    pairs = [find_mean_and_deviation(told, place) for place in range(features)]
    return tuple(mean for mean, _ in pairs), tuple(deviation for _, deviation in pairs)


def find_mean_and_deviation(told: Sequence[Moments], place: int) -> tuple[float, float]:
    """Of one feature, over all sites that tell sums of it; a constant has the deviation 1."""
    count, total, square = 0, 0.0, 0.0
    for moments in told:
        # A grey picture's one channel stands for each of a colour one's three.
        own = place if len(moments.sums) > 1 else 0
        count += moments.count
        total += moments.sums[own]
        square += moments.squares[own]
    mean = total / count
    variance = square / count - mean * mean
    constant = variance <= SAME_NUMBER * mean * mean or variance <= 0
    return mean, 1.0 if constant else math.sqrt(variance)


def explain(sites: Sites, wish: Wish, *, shape: tuple[int, ...], features: int) -> dict[str, str]:
    """The choice and its reasons, in words for operator and sites."""
    told = {}
    if all(description.kind == "image" for description in sites.values()):
        told["image size"] = picture_size.explain(
            sites, shape[1:], side=wish.image_size, prepared=wish.prepared
        )
        if words := _explain_range(sites, wish):
            told["pixel range"] = words
    if all(description.kind == "tokens" for description in sites.values()):
        told |= text_choice.explain(sites, wish.length, wish.words, wish.fewest_sites)
    if words := _explain_standardising(sites, wish, features):
        told["standardise"] = words
    return told


def _explain_range(sites: Sites, wish: Wish) -> str:
    values = {description.values for description in sites.values()}
    if values == {"bytes"}:
        unused = (
            "" if wish.pixel_range == "auto" else f"; --pixel-range {wish.pixel_range} is for other pictures"
        )
        return f"8-bit pictures, 0..255 as they are{unused}" if unused else ""
    chosen, by_hand = choose_range(sites, wish), wish.pixel_range != "auto"
    if chosen.per_picture:
        return "each picture by its own darkest and lightest value: brightness cannot be compared between pictures"
    if chosen == Range():
        return ""
    why = "as --pixel-range says" if by_hand else _why_range(sites)
    mixed = "; 8-bit pictures among them stay as they are, 0..255" if "bytes" in values else ""
    return f"{chosen.low:g}..{chosen.high:g} becomes black..white, {why}{mixed}"


def _why_range(sites: Sites) -> str:
    wide = [site for site, description in sorted(sites.items()) if _tells_range(description)]
    if not wide:
        told = any(description.values == "wide" for description in sites.values())
        return "all that 16 bits hold: no site tells its own" if told else "the range such floats are kept in"
    why = f"the smallest and the largest value over the training parts of {len(wide)} sites"
    return f"{why}; --pixel-range LOW..HIGH chooses another{_say_lost(sites, wide)}"


def _say_lost(sites: Sites, wide: Sequence[ClientId]) -> str:
    """Who has far darker pictures than others: one site's bright ones cost it its grey levels."""
    low, high = min(sites[site].low for site in wide), max(sites[site].high for site in wide)
    poor = [site for site in wide if (sites[site].high - sites[site].low) * LOST < high - low]
    some = ", ".join(poor[:5]) + (", ..." if len(poor) > 5 else "")
    return f"; less than a sixteenth of it is used at {some}: grey levels are lost there" if poor else ""


def _explain_standardising(sites: Sites, wish: Wish, features: int) -> str:
    # Columns of files of rows have their own words.
    numbers = [one for one in sites.values() if one.kind != "tokens" and not one.table]
    if not {description.values for description in numbers} & {"signed", "numbers"}:
        return ""
    if wish.standardise == "none":
        return "none: the numbers are taken as they are, as --standardise says"
    if not features:
        named = wish.pixel_range != "auto"
        if all(description.moments == NOT_SUMMED for description in sites.values()):
            return (
                f"none: no site has {FEWEST_SUMMED} numbers of a feature, and sums over fewer would tell them"
            )
        return "none: the pixel range is named" if named else "none: not all sites told their sums"
    each = "all numbers" if features == 1 else f"each of {features} features"
    few = [site for site, one in sorted(sites.items()) if one.moments == NOT_SUMMED]
    over = f"by mean and deviation over the training parts of {len(sites) - len(few)} sites"
    if few:
        some = ", ".join(few[:5]) + (", ..." if len(few) > 5 else "")
        over += f" (not of {some}: sums over fewer than {FEWEST_SUMMED} numbers would tell them)"
    return f"{each} {over}; --standardise none to leave them"
