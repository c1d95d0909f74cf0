"""Two runs are compared where nothing differs but the methods: all of a specification counts, save what is named."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from pfl_common.learning.method import Settings
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Model, RunSpec, Weights
from pfl_server.store.comparable import (
    COMPARED_BY_PARTS,
    NOT_COMPARED,
    Differences,
    Subject,
    differ_in_data,
    find_differences,
)

MODEL = Model("cnn", (1, 8, 8), ("x", "y"))
SPEC = RunSpec(
    "run-1", "dualfed", {}, MODEL, rounds=2, seed=5, roster=("a", "b"), data={"a": "11", "b": "22"}
)


def differ(one: RunSpec, other: RunSpec) -> Differences:
    """The differences of two runs that trained all their rounds."""
    return find_differences(*(Subject(spec, {}, spec.rounds) for spec in (one, other)))


def change(value: object) -> object:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}-other"
    if isinstance(value, Participation):
        return Participation(0.5, 0.5)
    if value is None:
        return Weights("resnet18.pth", "0" * 64, "1" * 64)
    assert isinstance(value, tuple | dict)
    return (*value, "other") if isinstance(value, tuple) else {**value, "other": "other"}


COMPARED = [field.name for field in fields(RunSpec) if field.name not in NOT_COMPARED]


@pytest.mark.parametrize("name", [name for name in COMPARED if name not in COMPARED_BY_PARTS])
def test_a_field_of_the_specification_is_compared(name: str) -> None:
    """Without a line that names it: the words say which one differs."""
    found = differ(SPEC, replace(SPEC, **{name: change(getattr(SPEC, name))}))
    assert [name] == [words.split()[0] for words in found.hindering]


@pytest.mark.parametrize("name", [field.name for field in fields(Model)])
def test_a_field_of_the_network_is_compared(name: str) -> None:
    """Image size, classes, scale of the numbers, words of texts."""
    other = replace(SPEC, model=replace(MODEL, **{name: change(getattr(MODEL, name))}))
    assert 1 == len(differ(SPEC, other).hindering)


def test_a_field_that_is_new_is_compared() -> None:
    """A specification of a release to come: nobody had to add its field here."""

    @dataclass(frozen=True)
    class Later(RunSpec):
        blur: float = 0.0

    told = {field.name: getattr(SPEC, field.name) for field in fields(SPEC)}
    assert ("blur 0, there 0.5",) == differ(Later(**told), Later(**told, blur=0.5)).hindering


@pytest.mark.parametrize("name", NOT_COMPARED)
def test_what_may_differ(name: str) -> None:
    """Each exception is a field there is, and hinders nothing."""
    assert differ(SPEC, replace(SPEC, **{name: change(getattr(SPEC, name))})).comparable


OWN = {"bn_policy", "aggregation", "eval_point", "diagnose", "mu"}


@pytest.mark.parametrize("name", [*(field.name for field in fields(Settings)), "mu"])
def test_settings_that_every_method_has_are_compared(name: str) -> None:
    """Batch size, step size and the like; a method's own are told, and hinder nothing."""
    settings = {"batch": 32, "mu": 0.1}
    found = differ(replace(SPEC, settings=settings), replace(SPEC, settings={**settings, name: "other"}))
    words = found.own if name in OWN else found.hindering
    assert [name] == [said.split()[0] for said in words]
    assert (name in OWN) == found.comparable


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quorum": 0.5}, "quorum majority, there 0.5"),
        ({"candidates": "present"}, "candidates roster, there present"),
        ({"participation": Participation(drop=0.1)}, "participation 1, there 1 with drop-outs 0.1"),
        ({"threads": 4}, "threads 1, there 4"),
        ({"model": replace(MODEL, shape=(1, 9, 9))}, "size 1, 8, 8, there 1, 9, 9"),
        ({"settings": {"batch": 64}}, "batch none, there 64"),
        ({"data": {"a": "11", "b": "33"}}, "data of b"),
        ({"roster": ("a", "b", "c")}, "sites a, b, there a, b, c"),
    ],
)
def test_both_values_are_named(change: dict[str, object], words: str) -> None:
    """As a person typed them."""
    assert (words,) == differ(SPEC, replace(SPEC, **change)).hindering


def test_values_that_read_alike_are_told_apart() -> None:
    """A difference in a late digit or behind the first few of a list is no riddle."""
    found = differ(replace(SPEC, settings={"lr": 0.1}), replace(SPEC, settings={"lr": 0.1 + 1e-9}))
    assert ("lr 0.1, there 0.100000001",) == found.hindering
    many = tuple("abcdefgh")
    found = differ(
        replace(SPEC, model=replace(MODEL, classes=many)),
        replace(SPEC, model=replace(MODEL, classes=(*many[:-1], "z"))),
    )
    assert ("classes 'h', there 'z'",) == found.hindering
    found = differ(
        replace(SPEC, model=replace(MODEL, classes=("a, b",))),
        replace(SPEC, model=replace(MODEL, classes=("a", "b"))),
    )
    assert ("classes ('a, b',), there ('a', 'b')",) == found.hindering


def test_a_site_without_a_fingerprint_counts_by_its_samples() -> None:
    """That the other sites have one says nothing about its data."""
    one = Subject(replace(SPEC, data={"a": "11"}), {"a": 1, "b": 40}, 2)
    assert [] == differ_in_data(one, replace(one, samples={"a": 2, "b": 40}))
    assert ["samples of b 40, there 50"] == differ_in_data(one, replace(one, samples={"a": 2, "b": 50}))
    assert ["data of b"] == differ_in_data(one, replace(one, spec=SPEC))


def test_rounds_are_those_trained() -> None:
    """A run under way has fewer than it wants."""
    assert ("rounds 1, there 2",) == find_differences(Subject(SPEC, {}, 1), Subject(SPEC, {}, 2)).hindering
