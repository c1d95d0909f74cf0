"""The READMEs say what is there."""

import re

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
    """Each file once, in order, and no more than a reader can follow."""
    steps = re.findall(r"^(\d+)\. `([^`]+\.py)`: ", (TOP / "tests" / "README.md").read_text(), re.M)
    files = [file for _, file in steps]
    assert [str(number) for number in range(1, len(files) + 1)] == [number for number, _ in steps]
    assert [] == [file for file in files if not (TOP / file).is_file()]
    assert len(set(files)) == len(files) <= 45
