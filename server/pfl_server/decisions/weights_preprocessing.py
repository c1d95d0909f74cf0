"""Takes over for a run how pictures were prepared for the weights it begins from: their size, and what each channel is
standardised by.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from pfl_common.spec.run import Model


@dataclass(frozen=True)
class Prepared:
    """How pictures were prepared when weights were trained."""

    source: str
    """Whose weights these are."""
    size: tuple[int, int]
    """Height and width."""
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    """Of each channel, for values from 0 to 1; empty: they were not standardised."""


def standardise_as(prepared: Prepared | None, model: Model) -> Model:
    """The model with the weights' mean and deviation, where its samples are pictures with values from 0 to 1."""
    if prepared is None or why_not(prepared, model):
        return model
    mean, deviation = _of_channels(prepared, model.shape[0])
    return replace(model, pixel_mean=mean, pixel_deviation=deviation)


def why_not(prepared: Prepared, model: Model) -> str:
    """Why a run's pictures are not standardised as the weights' were; empty if they are."""
    if not prepared.mean or not is_of_pictures(model):
        return "there is nothing to take over"
    if model.mean or (model.values == "signed" and model.low == model.high and not model.per_picture):
        return "their values are not 0..1; --pixel-range LOW..HIGH makes them so"
    channels = model.shape[0]
    return (
        ""
        if channels in (1, len(prepared.mean))
        else f"they have {channels} channels, not {len(prepared.mean)}"
    )


def is_of_pictures(model: Model) -> bool:
    """Whether a run's samples are pictures."""
    return model.kind == "image" and len(model.shape) == 3


def explain(prepared: Prepared | None, model: Model) -> dict[str, str]:
    """What pixels are standardised by, and why, for people."""
    if prepared is None or not prepared.mean or not is_of_pictures(model):
        return {}
    if why := why_not(prepared, model):
        return {"pixels": f"not standardised as for {prepared.source}: {why}"}
    grey = ", the mean over its channels" if len(prepared.mean) > len(model.pixel_mean) else ""
    return {
        "pixels": f"0..1 less {_say(model.pixel_mean)}, divided by {_say(model.pixel_deviation)}, as for "
        f"{prepared.source}{grey}"
    }


def _of_channels(prepared: Prepared, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """For grey pictures the mean of what colours have: the network sees one channel as all of them."""
    if channels == len(prepared.mean):
        return prepared.mean, prepared.deviation
    return (statistics.fmean(prepared.mean),), (statistics.fmean(prepared.deviation),)


def _say(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
