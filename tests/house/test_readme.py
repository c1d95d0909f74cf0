"""The READMEs say what is there."""

import re
from collections.abc import Sequence

import pytest

from pfl_common import methods
from tests.house import survey
from tests.house.skeleton import PACKAGES
from tests.house.survey import TOP

README = (TOP / "README.md").read_text()
TABLE = README.partition("\n## Methods\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_in_the_table(name: str) -> None:
    """A method's line is the first sentence of its file, so that the two cannot come apart."""
    sentence = " ".join(methods.load(name).doc.strip().split("\n\n")[0].split()).partition(": ")[2]
    assert f"| `{name}` | {sentence} |" in TABLE


def test_no_method_of_the_table_is_missing() -> None:
    """What the table names can be trained."""
    assert set(methods.names()) == set(re.findall(r"^\| `([a-z0-9]+)` \|", TABLE, re.MULTILINE))


@pytest.mark.parametrize(("package", "room"), PACKAGES.items())
def test_every_folder_of_a_room_has_its_line(package: str, room: str) -> None:
    """A room's README names each folder and each module beside them, and nothing that is gone."""
    told = re.findall(
        r"^\| (`.+?`) \| ", (TOP / room / "README.md").read_text().partition("## What never")[0], re.M
    )
    named = {name.rstrip("/") for cell in told for name in re.findall(r"`([^`]+)`", cell)}
    here = {path.parts[2] for path in survey.list_modules() if path.parts[1] == package} - {"__init__.py"}
    assert set() == here - named
    assert [] == [name for name in named - here if not (TOP / room / name).exists()]


def test_the_way_of_a_round_leads_through_files_that_are_there() -> None:
    """No more files, and no more returns to one, than a reader can follow."""
    way = follow(read_way())
    assert [] == [file for file in way if not (TOP / file).is_file()]
    files = len(set(way))
    assert files <= 45, f"{files} files"
    assert len(way) - files <= 60, f"{len(way) - files} returns"


def test_returns_are_counted() -> None:
    """Back to the caller for its next call, and to a file that was seen before; not to one that has nothing left."""
    way = [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "b")]
    assert ["a", "b", "c", "a", "d", "b"] == follow(way)


def read_way() -> list[tuple[int, str]]:
    """The files in the order in which a reader meets them, each with its depth."""
    block = (
        (TOP / "tests" / "README.md").read_text().partition("## One round, file by file")[2].split("```")[1]
    )
    found = re.findall(r"^( *)(\S+\.py) ", block, re.M)
    return [(len(spaces) // 2, file) for spaces, file in found]


def follow(way: Sequence[tuple[int, str]]) -> list[str]:
    """The files a reader looks into, one after another: before its next call the caller is looked into again."""
    looked: list[str] = []
    callers: dict[int, str] = {}
    for depth, file in way:
        if depth and looked[-1] != callers[depth - 1]:
            looked.append(callers[depth - 1])
        looked.append(file)
        callers[depth] = file
    return looked
