"""One list of exit codes, which errors and the README share."""

import re

import pytest

from pfl_common import errors, exit_codes
from pfl_common.errors import PflError
from tests.house.survey import TOP

CODES = {value for name, value in vars(exit_codes).items() if name.isupper()}


def test_no_two_ends_share_a_code() -> None:
    """A script that starts a program tells them apart."""
    assert [0, 1, 2, 3, 4, 5, 75, 130] == sorted(CODES)


@pytest.mark.parametrize(
    "kind", [e for e in vars(errors).values() if isinstance(e, type) and hasattr(e, "exit_code")]
)
def test_every_error_ends_with_a_code_of_the_list(kind: type[PflError]) -> None:
    """An error's own code is one that is explained."""
    assert kind.exit_code in CODES - {exit_codes.DONE}


def test_the_readme_says_them() -> None:
    """All but the shell's own."""
    said = (TOP / "README.md").read_text().partition("Programs end with ")[2].partition("(our fault)")[0]
    assert CODES - {exit_codes.INTERRUPTED} == {int(code) for code in re.findall(r"\b\d+\b", said)}
