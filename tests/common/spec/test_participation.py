"""How many sites a round asks: what is typed is one of three things, or an error that says what was meant."""

from __future__ import annotations

import pytest

from pfl_common.errors import SettingError
from pfl_common.spec.participation import Participation


@pytest.mark.parametrize(
    ("text", "low", "high"), [("0.5", 0.5, 0.5), ("1", 1.0, 1.0), (".25", 0.25, 0.25), ("0.1..1.0", 0.1, 1.0)]
)
def test_participation_by_numbers(text: str, low: float, high: float) -> None:
    """A ratio for every round, or a range from which each round draws."""
    assert Participation(low, high) == Participation.parse(text)


@pytest.mark.parametrize("text", ["site-b, site-a", "site-a,site-b,", "site-b,site-a"])
def test_participation_by_names(text: str) -> None:
    """The same sites in every round, in the order of their names."""
    assert Participation(fixed=("site-a", "site-b")) == Participation.parse(text)


def test_participation_keeps_the_drop_rate() -> None:
    """Drawn drop-outs go with either way of choosing."""
    assert (0.2, 0.2) == (
        Participation.parse("0.5", drop=0.2).drop,
        Participation.parse("a,b", drop=0.2).drop,
    )


@pytest.mark.parametrize(
    "text", ["0", "1.5", "7", "0.5..0.1", "0..1", "0.5..2", "-0.5", "nan", "inf", "1e9", "0.5..x"]
)
@pytest.mark.parametrize("around", ["{}", " {} "])
def test_a_participation_that_cannot_be_is_an_error(text: str, around: str) -> None:
    """The error shows all ways of writing it."""
    with pytest.raises(SettingError, match=r"0\.1\.\.1\.0"):
        Participation.parse(around.format(text))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("50%", "write 0.5"),
        ("10%..100%", "write 0.1..1"),
        ("half", "write 0.5"),
        ("All", "write 1.0"),
        ("0,5", "write 0.5; if these are sites, with one more comma: 0,5,"),
        ("nobody", ""),
        ("", ""),
        (",", ""),
        ("Hospital A", ""),
        ("a;b", ""),
        ("a,B", ""),
    ],
)
def test_words_for_how_many_are_no_names_of_sites(text: str, meant: str) -> None:
    """What was most likely meant is said where it can be told."""
    with pytest.raises(SettingError, match="participation is") as caught:
        Participation.parse(text)
    assert meant == caught.value.advice


@pytest.mark.parametrize(
    ("text", "names"), [("half,", ("half",)), ("0,5,", ("0", "5")), ("0,1,2", ("0", "1", "2"))]
)
def test_a_comma_makes_a_name_of_any_word(text: str, names: tuple[str, ...]) -> None:
    """A site may be called so; twice named it is asked once."""
    assert names == Participation.parse(text).fixed
    assert names == Participation.parse(f"{text},{names[0]}").fixed


def test_a_list_that_names_a_stranger_is_refused() -> None:
    """As soon as it is known who is there; a ratio fits everybody."""
    Participation.parse("0.5").check_roster(["hospital_a"])
    Participation.parse("hospital_a,").check_roster(["hospital_a", "hospital_b"])
    with pytest.raises(SettingError, match="names hospital_c, and no such site") as caught:
        Participation.parse("hospital_a,hospital_c").check_roster(["hospital_a", "hospital_b"])
    assert "known: hospital_a, hospital_b" in caught.value.expected


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("1.0", "1"), ("0.50", "0.5"), ("0.1..1.0", "0.1..1"), ("site-b, site-a", "site-a,site-b"), ("a,", "a")],
)
def test_it_is_told_in_few_letters(typed: str, shown: str) -> None:
    """As a person would type it, names in order; drop-outs are told beside it."""
    assert shown == Participation.parse(typed, drop=0.3).text
