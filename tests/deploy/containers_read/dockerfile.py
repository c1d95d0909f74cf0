"""A Dockerfile as stages of instructions; only what ours uses is understood."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field

_STAGE = re.compile(r"(?P<base>\S+)(?: AS (?P<name>\S+))?$", re.IGNORECASE)


@dataclass(frozen=True)
class Stage:
    """One FROM and what follows it."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """What follows each instruction of this kind."""
        return [rest for instruction, rest in self.steps if instruction == word]


@dataclass(frozen=True)
class Dockerfile:
    """All stages, and the arguments before the first."""

    arguments: dict[str, str]
    stages: dict[str, Stage]

    def line_of(self, target: str) -> list[Stage]:
        """The stages that make up an image, from its base on."""
        line: list[Stage] = []
        name = target
        while name in self.stages:
            line.insert(0, self.stages[name])
            name = self.stages[name].base
        return line

    def last(self, target: str, word: str) -> str:
        """The instruction of this kind that counts in an image; empty if it has none."""
        found = [rest for stage in self.line_of(target) for rest in stage.all(word)]
        return found[-1] if found else ""

    def words(self, target: str, word: str) -> list[str]:
        """An instruction in its JSON form: ENTRYPOINT, the command of HEALTHCHECK."""
        text = self.last(target, word)
        words: list[str] = json.loads(text[text.index("[") :])
        return words

    def pairs(self, target: str, word: str) -> dict[str, str]:
        """ENV or LABEL of an image, name by name."""
        lines = [rest for stage in self.line_of(target) for rest in stage.all(word)]
        return dict(pair.split("=", 1) for line in lines for pair in shlex.split(line))  # type: ignore[misc]


def read(text: str) -> Dockerfile:
    """Read a Dockerfile."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for word, rest in _instructions(text):
        if word == "FROM":
            found = _STAGE.match(rest)
            assert found, f"FROM {rest}"
            stages.append(Stage(found["name"] or "", found["base"]))
        elif stages:
            stages[-1].steps.append((word, rest))
        else:
            assert "ARG" == word, f"{word} before the first FROM"
            name, _, value = rest.partition("=")
            arguments[name] = value
    return Dockerfile(arguments, {stage.name: stage for stage in stages})


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0].upper(), line.split(None, 1)[1].strip()) for line in whole.splitlines()]
