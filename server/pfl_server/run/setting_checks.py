"""Checks a run's settings before anything starts, as far as that is possible without the sites."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any  # settings before they are checked are of any type

from pfl_common import methods, models
from pfl_common.app.config import parse_pairs
from pfl_common.errors import SettingError, nearest
from pfl_common.learning.method import Settings
from pfl_common.methods import Method
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.encoding import parse_encoding
from pfl_common.spec.rules import BEARS_A_SHARE, RoundRules
from pfl_server.decisions.input_choice import parse_range
from pfl_server.settings import ServerSettings

LEAST_FACTOR = 2.0
"""Of `--change-factor`: below it honest sites would be left out that train a little more than the others."""
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
    check_robust(settings, method, chosen)
    check_encoding(settings, method, chosen)
    return chosen


def check_robust(rules: RoundRules, method: Method, chosen: Settings) -> None:
    """Refuse a robust rule for a method that has no mean, and words that would have no effect."""
    if 0 < rules.change_factor < LEAST_FACTOR:
        raise SettingError(
            f"--change-factor {rules.change_factor:g}",
            expected=f"0 to take any change, or at least {LEAST_FACTOR:g}: half of all changes are above the median",
            advice="leave it out for 100",
        )
    if rules.robust not in BEARS_A_SHARE and rules.hostile_share != RoundRules.hostile_share:
        raise SettingError(
            f"--hostile-share {rules.hostile_share:g} with --robust {rules.robust}",
            expected=f"--hostile-share beside --robust {', '.join(sorted(BEARS_A_SHARE))}",
            advice="leave --hostile-share out",
        )
    if rules.robust != "none" and (why := method.no_robust(chosen)):
        fit = [name for name in methods.list_names() if not _why_not(methods.load(name))]
        raise SettingError(
            f"--robust {rules.robust} with the method {method.name}: {why}",
            expected=f"a method whose mean such a rule can replace: {', '.join(fit)}",
            advice="leave --robust out, or choose another method",
        )


def _why_not(method: Method) -> str:
    return method.no_robust(method.settle({}))


def check_encoding(rules: RoundRules, method: Method, chosen: Settings) -> None:
    """Refuse an encoding for a method that needs what crosses to the last digit, and words without an effect."""
    _check_downlink(rules, method)
    if parse_encoding(rules.encoding).is_plain or not (why := method.no_encoding(chosen)):
        return
    every = map(methods.load, methods.list_names())
    fit = [one.name for one in every if not one.no_encoding(one.settle({}))]
    raise SettingError(
        f"--encoding {rules.encoding} with the method {method.name}: {why}",
        expected=f"--encoding float32, or a method that shares numbers which may be rounded: {', '.join(fit)}",
        advice="leave --encoding out, or choose another method",
    )


def _check_downlink(rules: RoundRules, method: Method) -> None:
    """Refuse to send changes where none can be sent, and to choose where there is nothing to choose."""
    words, advice = f"--downlink {rules.downlink}", "leave --downlink out"
    if rules.downlink != "auto" and parse_encoding(rules.encoding).delta is None:
        raise SettingError(
            f"{words} with --encoding {rules.encoding}, whose downloads cross in one way only",
            expected="--downlink beside --encoding int8 or topk",
            advice=advice,
        )
    if rules.downlink == "delta" and not method.sends_alike:
        raise SettingError(
            f"{words} with the method {method.name}, which sends different sites different tensors",
            expected="a method that sends every site the same",
            advice=advice,
        )


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
