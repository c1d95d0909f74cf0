"""What was typed wrongly, as a person is told it: seen, expected, what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pytest
import typer
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from pfl_common.app.usage_errors import WrongUsage, words_of
from pfl_common.errors import SettingError


@dataclass(config=ConfigDict())
class Bounds:
    """Numbers with their bounds."""

    rounds: Annotated[int, Field(ge=1)] = 1
    share: Annotated[float, Field(gt=0, le=0.5)] = 0.5


def read(name: str) -> Callable[[str], object]:
    """What a word means for one of the numbers; the library's error has ours beneath it."""

    def parse(word: str) -> object:
        try:
            return getattr(Bounds(**{name: word}), name)
        except ValueError as wrong:
            raise typer.BadParameter(str(wrong)) from wrong

    return parse


app = typer.Typer()


@app.command()
def train(
    site: Annotated[str, typer.Argument(help="a site's name")],
    rounds: Annotated[object, typer.Option(parser=read("rounds"))] = 1,
    share: Annotated[object, typer.Option(parser=read("share"))] = 0.5,
) -> None:
    """One command."""


@app.command()
def status() -> None:
    """Another."""


def told(*words: str) -> SettingError:
    """The error for these words."""
    with pytest.raises(WrongUsage) as raised:
        typer.main.get_command(app).main(list(words), "pfl", standalone_mode=False)
    return words_of(raised.value, "pfl")


def test_a_word_that_is_nearly_one() -> None:
    """The nearest option and the nearest command are named, and whose help to read."""
    option = told("train", "a", "--round", "3")
    assert ("there is no option --round", "did you mean --rounds?") == (option.seen, option.expected)
    assert "see pfl train --help" == option.advice
    command = told("stats")
    assert ("there is no command 'stats'", "did you mean status?") == (command.seen, command.expected)
    assert "see pfl --help" == command.advice


def test_a_word_that_is_near_nothing() -> None:
    """All there are, in their order."""
    assert "one of status, train" == told("xyzzy").expected
    assert "one of --help, --rounds, --share" in told("train", "a", "--xyzzy").expected


def test_what_is_missing() -> None:
    """An argument by its name in capitals with its own help, an option's value."""
    missing = told("train")
    assert ("SITE is missing", "a site's name") == (missing.seen, missing.expected)
    assert "--rounds is given without a value" == told("train", "a", "--rounds").seen


def test_what_is_too_much() -> None:
    """A second word where one is taken."""
    assert "nothing is expected where 'b' stands" == told("train", "a", "b").seen


@pytest.mark.parametrize(
    ("words", "seen", "expected", "advice"),
    [
        (["--rounds", "0"], "--rounds is '0'", "1 or more", "see pfl train --help"),
        (["--rounds", "many"], "--rounds is 'many'", "a whole number", "see pfl train --help"),
        (["--share", "0"], "--share is '0'", "more than 0", "see pfl train --help"),
        (["--share", "0.6"], "--share is '0.6'", "0.5 or less", "see pfl train --help"),
        (["--share", "50%"], "--share is '50%'", "a number", "write 0.5"),
        (["--rounds", "50%"], "--rounds is '50%'", "a whole number", "see pfl train --help"),
    ],
)
def test_a_value_out_of_its_bounds(words: list[str], seen: str, expected: str, advice: str) -> None:
    """The bound in words. Half is written 0.5; of whole numbers there is none to advise."""
    error = told("train", "a", *words)
    assert (seen, expected, advice) == (error.seen, error.expected, error.advice)


def test_a_long_word_is_cut() -> None:
    """Sixty letters of it are enough to find it again."""
    assert f"there is no command {'x' * 60!r}" == told("x" * 100).seen
