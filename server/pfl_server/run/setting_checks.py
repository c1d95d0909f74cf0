"""Checks a run's settings before anything starts, as far as that is possible without the sites."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any  # settings before they are checked are of any type

from pfl_common import methods, models
from pfl_common.app.config import parse_pairs
from pfl_common.errors import SettingError, nearest
from pfl_common.learning.method import Settings
from pfl_common.models.without_numbers import without_numbers
from pfl_server.decisions.input_choice import parse_range
from pfl_server.settings import ServerSettings

SMALLEST_SIDE = 8
"""Of images, when no backbone is named: below it nothing is left to see."""


def check_words(settings: ServerSettings) -> Settings:
    """Check names, and settings that depend on each other; gives the method's own settings."""
    method = methods.load(settings.method)
    chosen = method.settle(settings.set)
    parse_range(settings.pixel_range)
    if settings.backbone:
        models.check_name(settings.backbone)
    if settings.image_size:
        _check_size(settings.image_size, settings.backbone)
    if settings.encoder_projector and method.name == "dualfed":
        raise SettingError(
            "--encoder-projector with the method dualfed, which has that projector of its own",
            expected="another method, for comparison with dualfed",
            advice="leave --encoder-projector out",
        )
    return chosen


def add_method_settings(values: dict[str, Any], preset: str | None, pairs: Iterable[str]) -> dict[str, Any]:
    """The method's own settings, strongest first: each `--set`, the preset, the file's `[set]`."""
    chosen: dict[str, Any] = {}
    if preset is not None:
        method = methods.load(values.get("method", ServerSettings.method))
        if preset not in method.presets:
            raise SettingError(
                f"{method.name} has no preset {preset!r}", expected=nearest(preset, method.presets)
            )
        chosen = dict(method.presets[preset])
    chosen |= parse_pairs(pairs)
    before = values.get("set", {})
    # Only if there is something to add: what the file says of `set` is checked as it stands.
    return values | {"set": before | chosen} if chosen and isinstance(before, dict) else values


def _check_size(side: int, backbone: str) -> None:
    """Whether the backbone takes images of this side: the network itself is asked, without its memory."""
    if not backbone:
        if side < SMALLEST_SIDE:
            raise SettingError(
                f"setting 'image_size' is {side}",
                expected=f"{SMALLEST_SIDE} or more, or 0 for the sites' own size",
                advice=f"write {SMALLEST_SIDE} or 0, or name a --backbone that takes smaller images (mlp, resnet8)",
            )
        return
    try:
        with without_numbers():
            models.build(backbone, shape=(3, side, side), classes=2)
    except SettingError as error:
        raise SettingError(
            f"setting 'image_size' is {side}: {error.seen}", expected=error.expected, advice=error.advice
        ) from None
