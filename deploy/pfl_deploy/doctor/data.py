"""Checks a data folder as the site would read it: its kind, its oddities, and every unreadable file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pfl_client.data import Findings, look_through
from pfl_common.identity import site_name
from pfl_common.spec.run import Description
from pfl_deploy.doctor.result import Check, of_error, ok, warning

MOST_CLASSES = 12
"""Classes whose counts are shown; of more the smallest and the largest."""


def examine_data(folder: Path) -> Iterator[Check]:
    """Nothing of this leaves the machine: it may name files."""
    found = look_through(folder)
    yield ok("data", f"{found.layout}; recognised as {found.recognised}")
    for part, counts in found.counts.items():
        if counts:
            yield ok(f"data, {part}", _tell_counts(counts))
    if found.description is not None:
        yield from _tell_description(found.description)
        yield ok("data", f"the site would be called {site_name(folder)}, unless --name says otherwise")
    if found.told:
        yield ok("data, told", f"the site would tell {found.told}")
    for words in found.warnings:
        yield warning("data", words)
    yield from _name_unreadable(found)
    if found.error is not None:
        yield of_error("data", found.error)


def _name_unreadable(found: Findings) -> Iterator[Check]:
    for file in found.unreadable:
        advice = (
            "give this user the right to read it (chmod, chown)"
            if file.denied
            else "bring it back from a copy, or take it out of the folder"
        )
        yield warning("unreadable file", f"{file.shown} ({file.position}): {file.why}", advice=advice)


def _tell_counts(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    every = sorted(counts.items())
    if len(every) > MOST_CLASSES:
        order = Counter(counts).most_common()
        (most, high), (least, low) = order[0], order[-1]
        return f"{total} samples of {len(every)} classes, from {low} ({least}) to {high} ({most})"
    return f"{total} samples, " + ", ".join(f"{name}: {number}" for name, number in every)


def _tell_description(said: Description) -> Iterator[Check]:
    if said.sizes:
        shown = ", ".join(f"{width}x{height} ({number})" for height, width, number in said.sizes[:5])
        more = f" and {len(said.sizes) - 5} more" if len(said.sizes) > 5 else ""
        yield ok("data, sizes", f"width x height (pictures): {shown}{more}")
    if said.low < said.high:
        yield ok("data, values", f"from {said.low:g} to {said.high:g}")
    if len(said.classes) < 2:
        yield warning("data", f"{len(said.classes)} class in all: nothing can be told apart here alone")
