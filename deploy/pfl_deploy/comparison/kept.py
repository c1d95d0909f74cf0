"""Finished runs in a file, one line each, so that an interrupted comparison continues where it stopped.

A result is served again only for the very same run: settings, every site's data, the product's code and what else
decides its bits are in its key. What else lies in the file is left as it is, and counted.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # plain values from JSON

from pfl_common.errors import SettingError
from pfl_deploy.comparison.outcome import Outcome

FORM = 3
"""Of the file's lines; those of other forms are not used."""


@dataclass(frozen=True)
class Circumstances:
    """Everything beside its settings that decides a run's result."""

    data: Mapping[str, str]
    """Each site's fingerprint."""
    versions: Mapping[str, str]
    """Of the product, its code, torch and the machine."""
    hold_out: float = 0.0
    weights: str = ""
    """The SHA-256 of the file of weights that all runs begin from."""

    def key(self, server: Mapping[str, Any]) -> dict[str, Any]:
        """The name of a run's result."""
        plain = {"server": server, "data": self.data, "versions": self.versions, "hold_out": self.hold_out}
        plain |= {"weights": self.weights} if self.weights else {}
        made: dict[str, Any] = json.loads(json.dumps(plain, sort_keys=True))
        return made

    def why_other(self, key: Mapping[str, Any]) -> str:
        """Why a kept result cannot be of a run of today; empty if it can."""
        if key.get("data") != dict(self.data) or key.get("hold_out") != self.hold_out:
            return "other data"
        if key.get("weights", "") != self.weights:
            return "other weights"
        versions = key.get("versions")
        if versions != dict(self.versions):
            was = versions.get("code") if isinstance(versions, dict) else None
            return "other code" if was != self.versions.get("code") else "another machine or torch"
        return ""


class Kept:
    """The file of finished runs; without a file nothing outlives the comparison."""

    def __init__(self, file: Path | None, circumstances: Circumstances) -> None:
        self._file, self._circumstances = file, circumstances
        self._known: dict[str, Outcome] = {}
        self._left: Counter[str] = Counter()
        self._writing = threading.Lock()
        self._torn = False
        if file is not None and file.exists():
            self._read(file)

    def find(self, server: Mapping[str, Any]) -> Outcome | None:
        """The result of this very run, if it is known."""
        return self._known.get(_text(self._circumstances.key(server)))

    def add(self, server: Mapping[str, Any], outcome: Outcome) -> None:
        """Keep a result; one that another try may change is not kept."""
        key = self._circumstances.key(server)
        with self._writing:
            self._known[_text(key)] = outcome
            if self._file is not None and outcome.lasting:
                line = json.dumps({"form": FORM, "key": key, "result": outcome.to_json()})
                with self._file.open("a") as book:
                    # A line that was cut by a kill must not swallow this one.
                    book.write(("\n" if self._torn else "") + line + "\n")
                    self._torn = False

    def tell(self) -> list[str]:
        """Words on the file's content, and on results in it that are not used."""
        if self._file is None or not (self._known or self._left):
            return []
        left = ", ".join(f"{count} of {why}" for why, count in sorted(self._left.items()))
        found = f"{self._file} holds {len(self._known)} results of these data and this code"
        return [found + (f"; not used: {left}" if left else "")]

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(
                f"--keep {file} cannot be read: {error}", expected="a file that pfl compare wrote, or none"
            ) from None
        self._torn = bool(text) and not text.endswith("\n")
        lines = text.splitlines()
        for place, line in enumerate(lines):
            self._take(line, torn=self._torn and place == len(lines) - 1)

    def _take(self, line: str, *, torn: bool) -> None:
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict) or entry.get("form") != FORM:
                self._left["an older release"] += 1
                return
            key, outcome = entry["key"], Outcome.from_json(entry["result"])
        except (ValueError, KeyError):
            self._left["a line that was cut off" if torn else "lines that cannot be read"] += 1
            return
        if why := self._circumstances.why_other(key):
            self._left[why] += 1
        else:
            self._known[_text(key)] = outcome


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
