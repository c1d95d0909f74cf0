"""Every word that a number counts under is explained to the person who is woken by it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common.spec.messages import DECLINES
from pfl_server.network.rpc import REFUSALS
from tests.deploy.support.watching import DEPLOY, PROMETHEUS

ROOMS = tuple(
    DEPLOY.parent / place for place in ("common/pfl_common", "server/pfl_server", "client/pfl_client")
)
NEVER_COUNTED = {"session"}
"""How every line begins."""


def section(alert: str) -> str:
    """What the runbook says under an alert's name."""
    return (PROMETHEUS / "runbook.md").read_text().partition(f"\n## {alert}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The rows of its tables, without the headings."""
    cells = (line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `"))
    return [[cell.strip() for cell in row] for row in cells]


def raised(file: Path) -> Iterator[str]:
    """The codes of refusals as they stand in a program's text."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("Refused", "refuse") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def test_each_code_of_a_refusal_has_its_row() -> None:
    """All that is exposed is explained once, what it means and what to do, and nothing that is not exposed."""
    explained = rows(section("PflRefusalsRising"))
    assert sorted(REFUSALS) == sorted(row[0].strip("`") for row in explained)
    for row in explained:
        assert 3 == len(row), row
        assert all(row), row


def test_each_reason_to_decline_is_explained() -> None:
    """All that a site can say, and nothing else."""
    steps = re.findall(r"^\d\. ((?:`\w+`(?:, )?)+):", section("PflSiteDeclining"), re.MULTILINE)
    assert sorted(DECLINES) == sorted(word for words in steps for word in re.findall(r"`(\w+)`", words))


def test_what_the_programs_say_is_in_the_list() -> None:
    """A code that is not would be counted as `other`."""
    said = {code: file for room in ROOMS for file in sorted(room.rglob("*.py")) for code in raised(file)}
    assert "late" in said
    assert {} == {code: file for code, file in said.items() if code not in {*REFUSALS, *NEVER_COUNTED}}


@pytest.mark.parametrize("code", REFUSALS)
def test_codes_have_one_spelling(code: str) -> None:
    """In all programs and on the wire."""
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
