"""The status page's colours: a phase has one of its own, told apart by eyes of every kind, by day and by night."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from pfl_server.status import page
from pfl_server.telemetry.counters import PHASES

CSS = page.assets()["status.css"].decode()
KEPT_APART = (*PHASES, "counted")
GROUNDS = ("ground", "card")
SAME = {"down": "download", "up": "upload", "working": "work", "uploading": "upload"}
"""What is a phase under another name: bytes in a chart, the doings of a site."""

APART = 0.09
"""Distance in OKLab; a difference that is just noticed has about 0.02."""
STANDS_OUT = 3.0
"""WCAG 1.4.11 asks so much contrast of graphics."""

# Machado, Oliveira and Fernandes 2009: how linear RGB looks without one kind of cones.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# Ottosson 2020: from linear RGB to the answers of the cones, and from their cube roots to OKLab.
TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
TO_LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def variables(scheme: str) -> dict[str, str]:
    """The colours of a scheme by name."""
    day, night, *_ = re.findall(r":root \{(.*?)\}", CSS, re.S)
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", day))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", night)) if scheme == "dark" else {})


def grounds_by_class() -> dict[str, str]:
    """Which variable each class takes for its ground."""
    rules = re.findall(r"^([.\w, -]+) \{ background: var\(--([\w-]+)\);", CSS, re.M)
    return {name.strip(" ."): variable for names, variable in rules for name in names.split(",")}


def times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def linear(color: str) -> list[float]:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def seen(color: str, eye: str) -> list[float]:
    """How a colour looks, in OKLab."""
    shown = [min(1.0, max(0.0, part)) for part in times(EYES[eye], linear(color))]
    return times(TO_LAB, [part ** (1 / 3) for part in times(TO_CONES, shown)])


def contrast(one: str, other: str) -> float:
    light = [0.05 + sum(times(((0.2126, 0.7152, 0.0722),), linear(color))) for color in (one, other)]
    return max(light) / min(light)


def test_each_phase_has_a_colour_of_its_own() -> None:
    """The same one wherever it is shown, and no other phase has it."""
    used = grounds_by_class()
    assert {name: name for name in KEPT_APART} == {name: used.get(name) for name in KEPT_APART}
    assert SAME == {name: used.get(name) for name in SAME}
    others = {name: variable for name, variable in used.items() if name not in (*KEPT_APART, *SAME)}
    assert {} == {name: variable for name, variable in others.items() if variable in KEPT_APART}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
def test_any_two_are_told_apart(eye: str, scheme: str) -> None:
    """By eyes with all cones, and by those that lack one of the three kinds."""
    colors = variables(scheme)
    looks = {name: seen(colors[name], eye) for name in KEPT_APART}
    distances = {
        pair: sum((a - b) ** 2 for a, b in zip(looks[pair[0]], looks[pair[1]], strict=True)) ** 0.5
        for pair in combinations(KEPT_APART, 2)
    }
    assert {} == {pair: distance for pair, distance in distances.items() if distance < APART}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_stand_out(scheme: str) -> None:
    """From whatever they may lie on, the lines of the accuracy chart too."""
    colors = variables(scheme)
    found = {
        (name, ground): contrast(colors[name], colors[ground])
        for name in (*KEPT_APART, "blue", "orange", "green", "red", "grey", "soft")
        for ground in GROUNDS
    }
    assert {} == {pair: ratio for pair, ratio in found.items() if ratio < STANDS_OUT}


def test_what_is_no_phase_is_hatched() -> None:
    """Called, away and lost need no colour to be told apart: each has a direction of its own."""
    hatched = dict(re.findall(r"^\.(\w+) \{ background: repeating-linear-gradient\((\d+)deg", CSS, re.M))
    assert {"called", "away", "lost"} == hatched.keys()
    assert 3 == len(set(hatched.values()))
