"""Removes each guard of `guards.json` in a throw-away copy of the tree, one at a time, and shows the test that falls.

python -m tests.hostile.guards [NAME...]     only guards whose names hold one of these words

An entry has a `guard` (its name), a `file`, the `old` text there that is the guard, the `new` text without it, and the
`test` that proves it (path::name). A guard whose removal no test notices is an error, and so is a text that is not
found exactly once.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("guards.json")
ROOMS = ("server", "client", "common", "deploy")
AT_ONCE = 2
SECONDS = 240.0
"""For one test: a removed guard may leave a program waiting for ever."""
PASSES = "STILL PASSES"
_RED, _NO_TESTS = 1, (4, 5)
"""What pytest ends with when a test has failed, and when it has found none."""


@dataclass(frozen=True)
class Guard:
    """One answer of ours to an attack, and the test that proves it."""

    guard: str
    file: str
    old: str
    new: str
    test: str

    def check(self, top: Path) -> str:
        """What is wrong with the entry; empty if it can be tried."""
        file = top / self.file
        if not file.is_file():
            return f"there is no file {self.file}"
        found = file.read_text().count(self.old)
        if found != 1:
            return f"its text stands {found} times in {self.file}; expected: once"
        if self.old == self.new:
            return "nothing is removed: old and new are the same"
        return self._find_broken(file)

    def remove(self, top: Path) -> None:
        """Take it out of a copy of the tree."""
        file = top / self.file
        file.write_text(self._without(file))

    def _without(self, file: Path) -> str:
        return file.read_text().replace(self.old, self.new)

    def _find_broken(self, file: Path) -> str:
        """What the file without the guard lacks to be a module: every test falls over one that is none."""
        try:
            if file.suffix == ".py":
                ast.parse(self._without(file))
        except SyntaxError as error:
            return f"without it {self.file} is no Python: {error}"
        return ""


@dataclass(frozen=True)
class Outcome:
    """What became of the test without the guard."""

    guard: Guard
    words: str
    seconds: float
    fell: bool


def read(file: Path = LIST) -> tuple[Guard, ...]:
    """All guards there are."""
    return tuple(Guard(**entry) for entry in json.loads(file.read_text()))


def choose(guards: Sequence[Guard], words: Sequence[str]) -> list[Guard]:
    """Those whose names hold one of the words; without words all."""
    return [one for one in guards if not words or any(word in one.guard for word in words)]


def copy_tree(into: Path) -> None:
    """The tree as it is, without what git ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=TOP, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (source := TOP / name).is_file():
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def attempt(guard: Guard, *, seconds: float = SECONDS) -> Outcome:
    """Run the guard's test with it, where it passes, and then without it."""
    began = time.monotonic()
    if wrong := guard.check(TOP):
        return Outcome(guard, wrong, 0.0, fell=False)
    with tempfile.TemporaryDirectory(prefix="pfl-guard-") as place:
        copy = Path(place)
        copy_tree(copy)
        # With the guard first: a test that fails anyway, or cannot run here, would seem to hold it.
        words, fell = _run(guard.test, copy, seconds)
        if words == PASSES:
            guard.remove(copy)
            words, fell = _run(guard.test, copy, seconds)
        else:
            words, fell = f"with it too: {words}", False
    return Outcome(guard, words, time.monotonic() - began, fell)


def _run(test: str, copy: Path, seconds: float) -> tuple[str, bool]:
    rooms = os.pathsep.join([str(copy), *(str(copy / room) for room in ROOMS)])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", "-p", "no:cacheprovider", test]
    try:
        code = subprocess.run(
            command,
            cwd=copy,
            # Compiled modules are known by second and size: a guard taken out at once would still be there.
            env=os.environ | {"PYTHONPATH": rooms, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=seconds,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return f"does not end within {seconds:.0f} s", True
    if code == _RED:
        return "falls", True
    if code in _NO_TESTS:
        return "NO SUCH TEST", False
    return PASSES if code == 0 else f"pytest ended with {code}", False


def show(outcome: Outcome) -> str:
    """One row of the table."""
    return f"{outcome.guard.guard:<48} {outcome.words:<28} {outcome.seconds:6.1f} s  {outcome.guard.test}"


def main(words: Sequence[str]) -> int:
    """Try all, two at a time; 1 if a guard can be removed and nobody notices, 2 if there is none to try."""
    guards = choose(read(), words)
    if not guards:
        print(f"no guard's name holds {' or '.join(words)}; the list is tests/hostile/guards.json")
        return 2
    print(f"{'without this guard':<48} {'its test':<28} {'time':>8}")  # a table is what is asked for
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = []
        for outcome in pool.map(attempt, guards):
            outcomes.append(outcome)
            print(show(outcome), flush=True)
    unnoticed = [one.guard.guard for one in outcomes if not one.fell]
    print(f"{len(outcomes) - len(unnoticed)} of {len(outcomes)} guards are held by their tests")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
