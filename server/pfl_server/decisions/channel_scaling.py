"""Chooses how the channels of pictures are scaled, and how training pictures are changed by chance.

Both come after everything that brings pictures of all sites to values 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from pfl_common.errors import DataError, SettingError
from pfl_common.spec import augmentation
from pfl_common.spec.augmentation import PAPERS, PRESETS, Crop, Flip, Rotate, Steps
from pfl_common.spec.data_description import FEWEST_SUMMED
from pfl_common.spec.run import NOT_SUMMED, Description, Model, Moments
from pfl_server.decisions.input_choice import SAME_NUMBER, Range, Sites, Wish, choose_range

AGREED = "agreed"


class Scaling(NamedTuple):
    """What is taken away from each channel, and what it is then divided by; empty: nothing is."""

    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()


SCALINGS: Mapping[str, Scaling] = {
    "none": Scaling(),
    # (x - 0.5) / 0.5: FedCP, GPFL, and FedBN's digits.
    "half": Scaling((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    # What torchvision's pretrained weights were trained with.
    "imagenet": Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    # FedCAC's code, for CIFAR-100 and for Tiny-ImageNet.
    "cifar100": Scaling((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
}
_DIGITS = frozenset(str(digit) for digit in range(10))


def choose_scaling(sites: Sites, wish: Wish, channels: int) -> Scaling:
    """The scaling of each channel, as wished."""
    if wish.normalise == "none":
        return Scaling()
    scale = _check_unit(sites, wish, f"--normalise {wish.normalise}")
    if wish.normalise != AGREED:
        return _fit(SCALINGS[wish.normalise], channels)
    if scale.per_picture:
        raise SettingError(
            "--normalise agreed beside --pixel-range per-picture: sums of raw values do not tell what is left of them",
            expected="a preset, or one range for all pictures",
            advice="name --normalise half, or another --pixel-range",
        )
    return _agree(sites, scale, channels)


def choose_steps(sites: Sites, wish: Wish, model: Model) -> Steps:
    """The changes that training pictures undergo, as wished."""
    steps = wish.augment if not isinstance(wish.augment, str) else _preset(wish.augment, model)[0]
    if steps:
        _check_unit(sites, wish, "--augment")
    _check_crop(steps, model.shape)
    return steps


def explain(sites: Sites, wish: Wish, model: Model) -> dict[str, str]:
    """The choices and their reasons, in words for operator and sites."""
    told = {}
    if wish.normalise != "none":
        told["normalise"] = _explain_scaling(sites, wish, model)
    if wish.augment not in ("none", ()):
        steps = choose_steps(sites, wish, model)
        why = _preset(wish.augment, model)[1] if isinstance(wish.augment, str) else "the list [[augment]]"
        told["augment"] = f"{augmentation.tell(steps)}: {why}"
    return told


def _explain_scaling(sites: Sites, wish: Wish, model: Model) -> str:
    pairs = zip(model.pixel_mean, model.pixel_deviation, strict=True)
    each = ", ".join(f"({mean:.4g}, {deviation:.4g})" for mean, deviation in pairs)
    chosen = f"(mean, deviation) of each channel {each}"
    if wish.normalise != AGREED:
        return f"{chosen}, as --normalise {wish.normalise} says"
    few = [site for site, one in sorted(sites.items()) if one.moments == NOT_SUMMED]
    without = f" (not of {', '.join(few[:5])}{', ...' if len(few) > 5 else ''})" if few else ""
    return f"{chosen}, over the training pictures of {len(sites) - len(few)} sites{without}"


def _check_unit(sites: Sites, wish: Wish, option: str) -> Range:
    """Refuse pictures of floats of which nothing says what is black and what is white."""
    scale = choose_range(sites, wish)
    if scale == Range() and any(one.values == "signed" for one in sites.values()):
        raise SettingError(
            f"{option} for pictures of floats that are not 0..1 or 0..255",
            expected="pictures with a range",
            advice="name it with --pixel-range LOW..HIGH, or leave the option out",
        )
    return scale


def _fit(scaling: Scaling, channels: int) -> Scaling:
    """For grey pictures the middle over the colours."""
    if channels == len(scaling.mean):
        return scaling
    return Scaling(*((round(sum(own) / len(own), 6),) * channels for own in scaling))


def _agree(sites: Sites, scale: Range, channels: int) -> Scaling:
    told = [_to_unit(one, moments, scale) for one, moments in _summed(sites)]
    if not told:
        raise DataError(
            f"no site has {FEWEST_SUMMED} training pictures, and sums over fewer would tell them: mean and deviation "
            "cannot be agreed",
            expected="a site with more, for --normalise agreed",
            advice="name a preset, such as --normalise half",
        )
    pairs = [_mean_and_deviation(told, place) for place in range(channels)]
    return Scaling(tuple(mean for mean, _ in pairs), tuple(deviation for _, deviation in pairs))


def _summed(sites: Sites) -> list[tuple[Description, Moments]]:
    return [
        (one, one.moments)
        for _, one in sorted(sites.items())
        if one.moments is not None and one.moments != NOT_SUMMED
    ]


def _to_unit(one: Description, raw: Moments, scale: Range) -> Moments:
    """Sums over raw values as sums over values 0..1: they are scaled by a line."""
    low, high = (0.0, 255.0) if one.values == "bytes" else (scale.low, scale.high)
    width, count = high - low, raw.count
    sums = tuple((total - count * low) / width for total in raw.sums)
    squares = tuple(
        (square - 2 * low * total + count * low * low) / width**2
        for total, square in zip(raw.sums, raw.squares, strict=True)
    )
    return Moments(count, sums, squares)


def _mean_and_deviation(told: list[Moments], place: int) -> tuple[float, float]:
    count = sum(one.count for one in told)
    # A grey site's one channel stands for each of a colour one's three; a run on grey pictures has grey sites alone.
    own = [place if len(one.sums) > 1 else 0 for one in told]
    mean = sum(one.sums[at] for one, at in zip(told, own, strict=True)) / count
    variance = sum(one.squares[at] for one, at in zip(told, own, strict=True)) / count - mean * mean
    return mean, 1.0 if variance <= SAME_NUMBER else math.sqrt(variance)


def _preset(name: str, model: Model) -> tuple[Steps, str]:
    """A preset's list, and why it is that; of `papers` it depends on the data set."""
    if name != PAPERS:
        return PRESETS[name], f"as --augment {name} says"
    side, classes = max(model.shape[1:]), len(model.classes)
    if classes == 100 and side == 32:
        return (Flip(), Rotate(degrees=15), Crop(padding=4, fill="mean")), "FedCAC's code, for CIFAR-100"
    if classes == 200 and side == 64:
        return (Flip(), Rotate(degrees=15)), "FedCAC's code, for Tiny-ImageNet"
    if _DIGITS.issuperset(model.classes) or side <= 32:
        return (), "nothing, as in the papers' code for digits and for CIFAR-10"
    return PRESETS[PAPERS], "what DualFed and FedPick do to photographs (PACS, DomainNet, Office)"


def _check_crop(steps: Steps, shape: tuple[int, ...]) -> None:
    """Refuse a frame wider than the picture in it."""
    for step in steps:
        if isinstance(step, Crop) and step.padding > min(shape[1:]):
            raise SettingError(
                f"--augment crops with a padding of {step.padding} pixels, and pictures are {shape[1]}x{shape[2]}",
                expected=f"a padding of at most {min(shape[1:])}",
                advice="name a smaller one in [[augment]]",
            )
