"""The README says what is there."""

import re

import pytest

from pfl_common import methods
from tests.house.survey import TOP

README = (TOP / "README.md").read_text()


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_in_the_table(name: str) -> None:
    """A method's line is the first sentence of its file, so that the two cannot come apart."""
    sentence = " ".join(methods.load(name).doc.strip().split("\n\n")[0].split()).partition(": ")[2]
    assert f"| `{name}` | {sentence} |" in README


def test_no_method_of_the_table_is_missing() -> None:
    """What the table names can be trained."""
    assert set(methods.names()) == set(re.findall(r"^\| `([a-z0-9]+)` \|", README, re.MULTILINE))
