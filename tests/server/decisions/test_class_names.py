"""Class names side by side: what almost matches is told, what is meant to differ is not."""

from __future__ import annotations

import pytest

from pfl_server.decisions import class_names
from pfl_server.decisions.class_names import (
    MOST_COMPARED,
    MOST_REMARKS,
    alone,
    common_classes,
    find_near,
    remark,
    tell_alone,
)


def test_equal_lists_keep_their_order() -> None:
    """ "zero, one, two" stays as it is when all say it so."""
    names = ("zero", "one", "two")
    assert names == common_classes({"a": names, "b": names})


def test_different_lists_become_one_sorted_by_name() -> None:
    """A class has the same index at every site, whichever it lacks and in whatever order it names them."""
    sites = {"a": ("dog", "cat"), "b": ("cat", "dog"), "c": ("ant",)}
    assert ("ant", "cat", "dog") == common_classes(sites)
    assert common_classes(sites) == common_classes(dict(reversed(sites.items())))


def test_names_that_are_numbers_are_sorted_as_numbers() -> None:
    """2 comes before 10, and words after numbers."""
    assert ("1", "2", "10", "other") == common_classes({"a": ("10", "2"), "b": ("1", "other")})


@pytest.mark.parametrize(
    ("one", "other", "how"),
    [
        ("Cat", "cat", "case"),
        ("CAT", "Cat", "case"),
        ("cat", "cat ", "space"),
        (" cat", "cat", "space"),
        ("big cat", "bigcat", "space"),
        ("big  cat", "big cat", "space"),
        ("big\u00a0cat", "big cat", "Unicode form"),
        ("Cat ", "cat", "case and space"),
        ("caf\u00e9", "cafe\u0301", "Unicode form"),
        ("\uff11", "1", "Unicode form"),
        ("7", "7 ", "space"),
        ("stra\u00dfe", "STRASSE", "case"),
        ("horse", "horses", "one letter"),
        ("pneumonia", "pneumonla", "one letter"),
        ("Pneumonia", "pneumona", "one letter"),
        ("lung_opacity", "Lung opacity", "case and space"),
        ("lung-opacity", "lung_opacity", "space"),
        ("lung opacity", "lung opacitiy", "one letter"),
        ("caf\u00e9s", "cafes", "one letter"),
    ],
)
def test_names_that_almost_match(one: str, other: str, how: str) -> None:
    """At two sites they are told, and in what they differ."""
    found = find_near([[one], [other]])
    assert ([how] if how else []) == [way for _, _, way in found]


def test_a_series_is_no_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of names that differ in one letter no pair is looked at: there would be ten thousands of pairs. Nor
    is a pair that one site keeps apart.
    """
    looked = []
    monkeypatch.setattr(class_names, "_is_slip", lambda *pair: looked.append(pair) or False)
    series = [f"abcdefgh{chr(0x4E00 + n)}" for n in range(600)]
    assert [] == find_near([series[:300], series[300:]])
    assert [] == looked
    assert [] == find_near([["horse", "horses"]])
    assert [] == looked


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cat", "bat"),
        ("cat", "cats"),
        ("1", "7"),
        ("1024", "1025"),
        ("1-2", "12"),
        ("1000", "10000"),
        ("stage 1", "stage 2"),
        ("stage 1", "stage 11"),
        ("stage_I", "stage_II"),
        ("stage iv", "stage v"),
        ("grade3", "grade4"),
        ("type a", "type b"),
        ("hepatitis-B", "hepatitis-C"),
        ("C34.1", "D34.1"),
        ("ward", "ward b"),
        ("male", "female"),
        ("dog", "wolf"),
        ("", "a"),
    ],
)
def test_names_that_are_meant_to_differ(one: str, other: str) -> None:
    """Short names, numbers, codes, letters and roman numbers that stand for themselves."""
    assert [] == find_near([[one], [other]])


def test_a_site_that_keeps_two_names_apart() -> None:
    """One letter is then no slip; case, space and Unicode form still are."""
    assert [] == find_near([["stop", "shop"], ["stop"]])
    assert [("Cat", "cat", "case")] == find_near([["Cat", "cat"]])


def test_very_many_names_are_compared_quickly() -> None:
    """Then only what is the same but for case, space and form is told."""
    names = [f"name {'abcdefghij'[n % 10]}{n}" for n in range(MOST_COMPARED)] + ["horse", "horses", "Horse"]
    assert [("Horse", "horse", "case")] == find_near([[name] for name in names])


def test_what_is_told_of_a_federation() -> None:
    """Who has which name, and who has a class alone; a list that was fixed makes the second no news."""
    sites = {"a": ["Cat", "dog"], "b": ["cat", "dog", "wolf"], "c": ["dog", "cat"]}
    near = "'Cat' (a) and 'cat' (b, c) are two classes and differ only in case: if they mean the same, give them one "
    near += "name"
    assert near == remark(sites)[0]
    assert ["only a has the class 'Cat'", "only b has the class 'wolf'"] == [
        words.partition(":")[0] for words in remark(sites)[1:]
    ]
    assert (near,) == remark(sites, fixed=True)
    assert () == remark({"a": ["cat", "dog"], "b": ["dog", "cat"]}) == remark({"a": ["cat", "dog"]})


def test_remarks_have_an_end_and_are_text() -> None:
    """However many there are, and whatever a peer's names are made of."""
    sites = {f"s{n:03d}": [f"own {'x' * n}"] for n in range(100)}
    told = remark(sites)
    assert (MOST_REMARKS + 1, "and ") == (len(told), told[-1][:4])
    (words, *_) = remark({"a": ["\x1b[31mred\n", "x"], "b": ["x"]})
    assert "\x1b" not in words
    assert "\n" not in words
    (long, *_) = remark({"a": ["y" * 900, "x"], "b": ["x"]})
    assert len(long) < 300


@pytest.mark.parametrize(
    ("sites", "apart"),
    [
        ({"a": "xy", "b": "xy"}, ""),
        ({"a": "xy", "b": "zw"}, "ab"),
        ({"a": "xy", "b": "xz", "c": "vw"}, "c"),
        ({"a": "xy", "b": "xz", "c": "vw", "d": "uv"}, ""),
        ({"a": "xy", "b": "xz", "c": "p", "d": "q", "e": "r"}, "cde"),
        ({"a": "xy"}, "a"),
    ],
)
def test_sites_without_a_common_class(sites: dict[str, str], apart: str) -> None:
    """Told when they are more than half of several sites."""
    assert tuple(apart) == alone(sites)
    wrong = len(sites) > 1 and 2 * len(apart) > len(sites)
    words = tell_alone(sites)
    assert wrong is bool(words)
    if wrong:
        assert (
            f"{len(apart)} of {len(sites)} sites have no class in common with any other ({apart[0]}: '"
            in words
        )
        assert "--classes" in words
