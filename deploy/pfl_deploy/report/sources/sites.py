"""Reads the sites' own histories: accuracy and training numbers, task by task.

A coordinator never has these. They are read where the person who asks for a report owns the
sites' folders or was given them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypeAlias, TypedDict

from pfl_common.errors import SettingError, StateError
from pfl_common.spec.run import ClientId, RunSpec

Curve: TypeAlias = dict[int, float]
"""A value by the number of rounds trained before."""

MOST_NAMED = 10
"""Sites or runs that a message names."""
_TASK = re.compile(r"(\d+)-\d+-(train|evaluate|finish)")


class Entry(TypedDict):
    """One line of a site's history."""

    task: str
    scores: dict[str, dict[str, float]]
    metrics: dict[str, float]
    best: NotRequired[dict[str, float]]


@dataclass(frozen=True)
class History:
    """One site's own numbers: accuracy by measure (pre/test/combined), and numbers from its training."""

    accuracy: Mapping[str, Curve]
    end: Mapping[str, float]
    """What the finished model reaches; empty before the run is over."""
    learning: Mapping[str, Curve]
    samples: Mapping[str, float] = field(default_factory=dict)
    """How many samples a measure is of, where that was written down."""
    rounds: int = 0
    """The rounds that the finished model has behind it."""
    best: Mapping[str, float] | None = None
    """Of the model that was kept as the best: its round, and accuracy, loss and samples of its validation."""

    def whole(self, measure: str) -> Curve:
        """The curve of a measure, with the finished model where it continues it."""
        curve = dict(self.accuracy.get(measure, {}))
        if measure in self.end and self.rounds not in curve:
            curve[self.rounds] = self.end[measure]
        return curve

    def final(self, measure: str) -> float | None:
        """The finished model's accuracy on the data of a measure, else the newest of that measure."""
        curve = self.accuracy.get(measure)
        newest = curve[max(curve)] if curve else None
        return self.end.get(f"pre/{measure.split('/')[1]}/combined", newest)

    def predicting(self, part: str) -> Curve:
        """What the method itself predicts on a part of the data: after training where it is measured there, else
        before it; the finished model stands at the end.
        """
        before, after = f"pre/{part}/combined", f"post/{part}/combined"
        curve = self.accuracy.get(after if after in self.accuracy else before, {})
        # A finished model is measured once, as it will predict.
        return {**curve, self.rounds: self.end[before]} if before in self.end else dict(curve)


def read_history(folder: Path) -> list[Entry]:
    """The lines of a history; one that is just being written is left for the next time."""
    file = folder / "history.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def split_task(task: str) -> tuple[int, str] | None:
    """A task's round and kind; None of what is not the name of a task."""
    found = _TASK.fullmatch(task)
    return (int(found[1]), found[2]) if found else None


def find_histories(places: Iterable[Path], run: str, spec_hash: str) -> dict[ClientId, History]:
    """The histories of one run's sites below some folders; another run's of the same name are not taken."""
    found: dict[ClientId, History] = {}
    for place in places:
        if not place.is_dir():
            raise SettingError(
                f"--sites {place} is not a folder",
                expected="the state folder of one or more sites, or a simulation's folder",
            )
        for file in sorted(place.rglob(f"runs/{run}/history.jsonl")):
            if _spec_hash(file.parent) == spec_hash:
                found[file.parents[2].name] = read_numbers(file.parent)
    return dict(sorted(found.items()))


def check_place(place: Path, runs: Sequence[RunSpec], sites: Sequence[ClientId]) -> None:
    """A folder that holds no state of a site of these runs was named by mistake: say what it holds instead."""
    hashes = {spec.hash for spec in runs}
    kept = {file.parent: file.parents[2].name for file in sorted(place.rglob("runs/*/spec.json"))}
    if hashes & {_spec_hash(folder) for folder in kept}:
        return
    seen = [f"{folder.name} of {site}" for folder, site in kept.items()]
    others = f"what it holds is of another run: {_name(seen)}" if seen else "it holds no site's state at all"
    raise SettingError(
        f"--sites {place} holds no state of a site of run {runs[0].id}; {others}",
        expected=f"the state folder of one or more of the run's sites: {_name(sites)}",
        advice="name the folder given to pfl-client with --state, or the copy that a site's owner gave you",
    )


def _name(words: Sequence[str]) -> str:
    """Few of them, and that there are more."""
    return ", ".join(words[:MOST_NAMED]) + (" and others" if len(words) > MOST_NAMED else "")


def _spec_hash(folder: Path) -> str:
    try:
        return RunSpec.from_json((folder / "spec.json").read_bytes()).hash
    except (OSError, ValueError):
        return ""


class _Books:
    """The lines of a history, sorted. A task done twice counts once, with its last numbers."""

    def __init__(self) -> None:
        self.accuracy: dict[str, Curve] = {}
        self.learning: dict[str, Curve] = {}
        self.end: dict[str, float] = {}
        self.samples: dict[str, float] = {}
        self.rounds = 0
        self.best: dict[str, float] | None = None

    def enter(self, entry: Entry, number: int, kind: str) -> None:
        """One line."""
        for name, values in entry["scores"].items():
            self.samples |= {name: values["samples"]} if "samples" in values else {}
            if kind == "finish":
                self.end[name], self.rounds = values["accuracy"], number
            else:
                self.accuracy.setdefault(name, {})[number - name.startswith("pre/")] = values["accuracy"]
        if kind == "finish":
            self.best = entry.get("best")
        for name, value in entry["metrics"].items():
            if kind == "train" and math.isfinite(value):
                self.learning.setdefault(name, {})[number] = value


def read_numbers(folder: Path) -> History:
    """One site's own numbers from the folder of its run, as far as it has come."""
    books = _Books()
    try:
        for entry in read_history(folder):
            task = split_task(entry["task"])
            if task is not None:
                books.enter(entry, *task)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(
            f"{folder / 'history.jsonl'} cannot be read: {error}", expected="a site's own history, unchanged"
        ) from None
    accuracy, learning = _sorted(books.accuracy), _sorted(books.learning)
    return History(accuracy, books.end, learning, books.samples, books.rounds, books.best)


def _sorted(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    return {name: dict(sorted(curve.items())) for name, curve in sorted(curves.items())}
