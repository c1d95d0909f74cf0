"""The list of guards and the README's table of threats: what they name is there. Nothing is removed or run here."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.hostile import guards
from tests.hostile.guards import TOP, Guard, choose

ALL = guards.read()
README = TOP / "README.md"
_TEST = re.compile(r"tests/[\w/]+\.py::[\w:]+")


@cache
def list_tests(path: Path) -> frozenset[str]:
    """The names of a file's tests, those of classes as Class::name."""
    tree = ast.parse(path.read_text())
    found = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            found |= {f"{owner.name}::{one.name}" for one in owner.body if hasattr(one, "name")}
    return frozenset(found)


def is_there(test: str) -> bool:
    """Whether a test of this name exists; the values of its table are not looked at."""
    path, _, name = test.partition("::")
    return (TOP / path).is_file() and name.partition("[")[0] in list_tests(TOP / path)


def read_threats(text: str) -> list[list[str]]:
    """The rows of the table that begins with the column `attacker`."""
    _, found, rest = text.partition("\n| attacker |")
    rows = rest.partition("\n\n")[0].splitlines()[2:] if found else []
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("guard", ALL, ids=lambda guard: guard.guard)
def test_a_guard_stands_where_the_list_says_and_has_its_test(guard: Guard) -> None:
    """Exactly once, so that it can be taken out; `python -m tests.hostile.guards` does so."""
    assert "" == guard.check(TOP)
    assert is_there(guard.test), guard.test


def test_every_guard_has_a_name_of_its_own() -> None:
    """By which it can be chosen."""
    assert len(ALL) == len({guard.guard for guard in ALL})
    assert [ALL[0]] == choose(ALL, [ALL[0].guard])
    assert list(ALL) == choose(ALL, [])


def test_each_threat_of_the_readme_names_a_test_that_is_there() -> None:
    """A row without one would be a promise."""
    for row in read_threats(README.read_text()):
        named = _TEST.findall(" ".join(row))
        assert named, row
        assert [] == [test for test in named if not is_there(test)], row


def test_the_table_of_threats_is_read_by_its_first_column() -> None:
    """Other tables are passed over, and so is what comes after it."""
    text = "x\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n| attacker | test |\n|---|---|\n| eve | `tests/a.py::test_b` |\n\ny"
    assert [["eve", "`tests/a.py::test_b`"]] == read_threats(text)
    assert ["tests/a.py::test_b"] == _TEST.findall("`tests/a.py::test_b`")
    assert not is_there("tests/house/test_guards.py::test_gone")
    assert is_there("tests/house/test_guards.py::test_every_guard_has_a_name_of_its_own[x]")


def test_a_guard_that_cannot_be_taken_out_is_said(tmp_path: Path) -> None:
    """A file that is not there, a text that is there twice or not at all, nothing to take out, a module that is none
    without it.
    """
    (tmp_path / "a.py").write_text("if x: 1\nif x: 1\nif y: 2\n")
    assert "no file b.py" in Guard("g", "b.py", "if", "", "t").check(tmp_path)
    assert "2 times" in Guard("g", "a.py", "if x", "", "t").check(tmp_path)
    assert "0 times" in Guard("g", "a.py", "if z", "", "t").check(tmp_path)
    assert "nothing is removed" in Guard("g", "a.py", "if y", "if y", "t").check(tmp_path)
    assert "is no Python" in Guard("g", "a.py", "2", "", "t").check(tmp_path)
    taken = Guard("g", "a.py", "if y", "if True", "t")
    assert "" == taken.check(tmp_path)
    taken.remove(tmp_path)
    assert "if x: 1\nif x: 1\nif True: 2\n" == (tmp_path / "a.py").read_text()


def test_what_is_tried_is_this_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy has the guard taken out, and the tree itself stays as it is."""
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "limits.py").write_text("LIMIT = 3\n")
    body = "import limits\n\ndef test_limit():\n    assert limits.LIMIT == 3\n"
    (tree / "tests" / "test_it.py").write_text(body)
    monkeypatch.setattr(guards, "TOP", tree)
    monkeypatch.setattr(guards, "copy_tree", lambda into: shutil.copytree(tree, into, dirs_exist_ok=True))
    outcome = guards.attempt(Guard("g", "limits.py", "3", "4", "tests/test_it.py::test_limit"))
    assert ("falls", True) == (outcome.words, outcome.fell)
    assert "LIMIT = 3\n" == (tree / "limits.py").read_text()
    (tree / "limits.py").write_text("LIMIT = 2 + 2  # 3\n")
    outcome = guards.attempt(Guard("g", "limits.py", "# 3", "", "tests/test_it.py::test_limit"))
    assert ("with it too: falls", False) == (outcome.words, outcome.fell), "it was no proof"


@pytest.mark.parametrize(
    ("code", "words", "fell"),
    [
        (0, "STILL PASSES", False),
        (1, "falls", True),
        (4, "NO SUCH TEST", False),
        (5, "NO SUCH TEST", False),
        (2, "pytest ended with 2", False),
        (None, "does not end within 9 s", True),
    ],
)
def test_how_a_test_ends_without_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, words: str, fell: bool
) -> None:
    """Only one that fails, or that waits for ever, holds its guard."""

    def run(command: list[str], *, timeout: float, **_: object) -> subprocess.CompletedProcess[bytes]:
        if code is None:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(guards.subprocess, "run", run)
    assert (words, fell) == guards._run("tests/a.py::test_b", tmp_path, 9)


def test_the_list_is_written_in_one_form() -> None:
    """Each entry has its five words and no other: parts of the list are made by different hands."""
    assert {("file", "guard", "new", "old", "test")} == {
        tuple(sorted(entry)) for entry in json.loads(guards.LIST.read_text())
    }
