"""What a user writes becomes settings, or an error that names what was meant."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Literal

import pytest
from pydantic import Field
from pydantic.dataclasses import dataclass

from pfl_common.app.config import alias_table, documentation, dump, parse_pairs, refuse_idle, settle
from pfl_common.errors import SettingError, nearest
from pfl_common.learning.method import STRICT, Settings


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """One setting of each kind."""

    lambda_: float = 1.0
    """lambda: a word Python keeps for itself."""
    personal: tuple[int, ...] = (0, 1, 1, 0)
    """A list."""
    switch: bool = True
    """A choice of two."""
    mode: Literal["one", "two"] = "one"
    """A choice by name."""


@dataclass(frozen=True, config=STRICT)
class Bounded(Settings):
    """Settings that not every number fits."""

    count: int = Field(default=1, ge=1)
    """At least one."""
    share: float = Field(default=1.0, gt=0, le=1)
    """A part of the whole."""
    switch: bool = True
    """A choice of two."""


def refusal(**given: object) -> str:
    with pytest.raises(SettingError) as caught:
        settle(Config, given, what="toy")
    return str(caught.value)


def test_nothing_given_gives_the_defaults() -> None:
    """A run without settings is a run with the documented ones."""
    assert Config() == settle(Config, {}, what="toy")


def test_the_reserved_word_is_written_without_its_mark() -> None:
    """Users write `lambda`."""
    assert 40.0 == settle(Config, {"lambda": "40"}, what="toy").lambda_
    assert "lambda" in alias_table(Config)


def test_the_marked_word_is_not_a_second_name() -> None:
    """One setting has one name, and the error gives it."""
    assert "did you mean 'lambda'?" in refusal(lambda_="40")


@pytest.mark.parametrize("text", ["1,0,0,1", "(1, 0, 0, 1)", "[1,0,0,1]", " 1 ,0,0,1, "])
def test_a_list_is_cut_at_its_commas(text: str) -> None:
    """As one types it, with or without brackets."""
    assert (1, 0, 0, 1) == settle(Config, {"personal": text}, what="toy").personal


def test_a_list_may_come_as_a_list() -> None:
    """As it lies in a specification or a file."""
    assert (1, 0) == settle(Config, {"personal": [1, 0]}, what="toy").personal


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("false", False), ("no", False), ("1", True)])
def test_a_switch_is_read(text: str, expected: bool) -> None:
    """The usual words for yes and no."""
    assert expected is settle(Config, {"switch": text}, what="toy").switch


def test_numbers_are_read_from_text() -> None:
    """A command line knows text only."""
    settings = settle(Config, {"epochs": "5", "lr": "1e-3"}, what="toy")

    assert (5, 0.001) == (settings.epochs, settings.lr)


def test_an_unknown_setting_names_the_nearest() -> None:
    """And all that there are, with whose they are."""
    words = refusal(epoch="3")

    assert "toy has no setting 'epoch'" in words
    assert "did you mean 'epochs'?" in words
    assert "aggregation, batch, bn_policy" in words


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epochs", "five", "a whole number from 1 to 1000000: a round without a pass trains nothing"),
        ("count", "0", "a whole number, 1 or more"),
        ("share", "0", "a number, more than 0 and at most 1"),
        ("share", "1.5", "a number, more than 0 and at most 1"),
        ("share", "1e9", "a number, more than 0 and at most 1"),
        ("share", "much", "a number, more than 0 and at most 1"),
        ("switch", "perhaps", "true or false"),
    ],
)
def test_what_would_have_been_right_is_said_in_our_words(name: str, value: str, expected: str) -> None:
    """Without the words of the library that looks at it."""
    with pytest.raises(SettingError) as caught:
        settle(Bounded, {name: value}, what="toy")
    assert expected == caught.value.expected


def test_a_program_is_not_named_twice() -> None:
    """Its name stands before each of its errors already."""
    with pytest.raises(SettingError) as caught:
        settle(Config, {"epochs": "five"}, what="pfl-server")
    assert "setting 'epochs' is 'five'" == caught.value.seen


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", "five"),
        ("epochs", "1.5"),
        ("lambda", "much"),
        ("mode", "three"),
        ("personal", "0,x"),
        ("switch", "perhaps"),
    ],
)
def test_an_ill_typed_setting_is_named_as_the_user_wrote_it(name: str, value: str) -> None:
    """The message has the setting, the value seen and what would have been right."""
    words = refusal(**{name: value})

    assert f"toy: setting '{name}" in words
    assert repr(value.split(",")[-1]) in words
    assert "expected:" in words


def test_the_choices_are_told() -> None:
    """A user who mistypes a choice reads all of them."""
    words = refusal(mode="tow")

    assert "'one'" in words
    assert "'two'" in words


@dataclass(frozen=True, config=STRICT)
class Lists(Settings):
    """Lists of a fixed length and of any."""

    four: tuple[bool, bool, bool, bool] = (False, True, True, False)
    """Four values."""
    many: tuple[int, ...] = ()
    """As many as one likes."""
    mode: Literal["one", "two"] = "one"
    """A choice by name."""


@pytest.mark.parametrize(
    ("name", "value", "seen", "expected"),
    [
        ("four", "true", "toy: setting 'four' is 'true'", "4 values, as 0,1,1,0"),
        ("four", "0,1,1,0,1", "toy: setting 'four' is '0,1,1,0,1'", "4 values, as 0,1,1,0"),
        ("four", "", "toy: setting 'four' is ''", "4 values, as 0,1,1,0"),
        ("four", 1.5, "toy: setting 'four' is 1.5", "4 values, as 0,1,1,0"),
        ("four", [1, 0], "toy: setting 'four' is [1, 0]", "4 values, as 0,1,1,0"),
        ("four", "0,x,1,1", "toy: setting 'four.1' is 'x'", "true or false; 4 values, as 0,1,1,0"),
        ("many", "1,x", "toy: setting 'many.1' is 'x'", "a whole number; values with commas between"),
        ("mode", "three", "toy: setting 'mode' is 'three'", "'one' or 'two'"),
    ],
)
def test_lists_and_choices_are_told_in_plain_words(
    name: str, value: object, seen: str, expected: str
) -> None:
    """The whole list as it was typed, and how to write it."""
    with pytest.raises(SettingError) as caught:
        settle(Lists, {name: value}, what="toy")
    assert (seen, expected) == (caught.value.seen, caught.value.expected)


def test_settings_come_back_from_a_specification() -> None:
    """Dumped under the users' names and settled again, they are the same."""
    settings = settle(Config, {"lambda": "3", "personal": "1,1", "mode": "two"}, what="toy")
    plain = dump(settings)

    assert (3.0, [1, 1], "two") == (plain["lambda"], plain["personal"], plain["mode"])
    assert settings == settle(Config, plain, what="toy")


def test_settings_do_not_change() -> None:
    """A run's settings are pinned by its specification."""
    with pytest.raises(FrozenInstanceError):
        Config().epochs = 2


def test_a_setting_without_effect_is_refused_by_the_name_users_know() -> None:
    """Where it has none; at its default it is nobody's choice."""
    refuse_idle(Config(), "lambda_", "personal", "switch", beside="mode = two")
    with pytest.raises(SettingError) as caught:
        refuse_idle(Config(lambda_=2.0), "switch", "lambda_", beside="mode = two")
    assert (
        "lambda was given without mode = two",
        "lambda beside mode = two only: elsewhere it has no effect",
        "add mode = two, or leave lambda out",
    ) == (caught.value.seen, caught.value.expected, caught.value.advice)


@pytest.mark.parametrize("kind", [Settings, Config])
def test_every_setting_is_explained(kind: type[Settings]) -> None:
    """The text below a field is what the user reads; each class explains the fields it adds."""
    assert set() == {name for name in kind.__annotations__ if not documentation(kind, name)}


def test_pairs_are_read() -> None:
    """Spaces around and dashes in a name do not matter; a value may hold an equals sign."""
    assert {"bn_policy": "local_bn", "a": "b=c"} == parse_pairs(["bn-policy=local_bn", " a = b=c"])


@pytest.mark.parametrize("pair", ["lambda", "=40", ""])
def test_a_pair_without_both_halves_is_an_error(pair: str) -> None:
    """The error shows how to write it."""
    with pytest.raises(SettingError, match="--set lambda=40"):
        parse_pairs([pair])


def test_a_word_like_no_other_gets_no_hint() -> None:
    """A hint that is far off would mislead; the known words are told all the same."""
    assert "known: alpha, beta" == nearest("zzzzzz", ["beta", "alpha"])
    assert "known: none" == nearest("x", [])
