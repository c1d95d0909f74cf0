"""Worked examples of the methods: which tests are marked as one, read from the tests' text without running them.

`@pytest.mark.golden("fedcp", item=19)` names the methods whose own code is tested and the example's number in the
specification of the methods. The table of `deploy/methods/README.md` counts them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Marked:
    """A test that works an example through the code of some methods."""

    file: Path
    test: str
    methods: tuple[str, ...]
    item: int


def find_marked(folder: Path = TESTS) -> list[Marked]:
    """All marked tests below a folder, in the order of their files."""
    return [found for file in sorted(folder.rglob("test_*.py")) for found in _read(file)]


def _read(file: Path) -> Iterator[Marked]:
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.golden":
                    yield _understand(mark, file, node.name)


def _understand(mark: ast.Call, file: Path, test: str) -> Marked:
    """The arguments are plain words and a number: what is computed cannot be read here."""
    words = tuple(ast.literal_eval(argument) for argument in mark.args)
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in mark.keywords}
    if not words or named.keys() != {"item"} or not isinstance(named["item"], int):
        raise ValueError(
            f"{file.name}, {test}: {ast.unparse(mark)}; expected golden('METHOD', ..., item=NUMBER)"
        )
    return Marked(file, test, words, named["item"])
