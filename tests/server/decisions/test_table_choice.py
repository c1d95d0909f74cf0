"""The columns that sites agree on: by name, by most sites, from sums and categories that are told; by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pfl_common.errors import DataError, Refused
from pfl_common.spec.run import Description
from pfl_common.spec.table_schema import Column, SeenColumn
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree, fits, odd_ones
from pfl_server.decisions.site_check import judge
from pfl_server.decisions.table_choice import choose_table, explain, find_hindrance

AGE = SeenColumn("age", count=10, total=100.0, square=1040.0)
WARD = SeenColumn("ward", categorical=True, categories=("a", "b"))
ARRAYS = Description((2,), ("ill", "well"), 20, "table", values="numbers")


def seen(*columns: SeenColumn) -> Description:
    return Description((len(columns),), ("ill", "well"), 20, "table", values="numbers", table=columns)


def chosen(*sites: Description, fewest_sites: int = 1, standardise: bool = True) -> tuple[Column, ...]:
    named = {f"site_{number}": one for number, one in enumerate(sites)}
    return choose_table(named, fewest_sites=fewest_sites, standardise=standardise)


def test_sums_of_all_sites_make_mean_and_deviation() -> None:
    """Those of a site that tells none are left out: it takes the others'."""
    other = replace(AGE, count=5, total=70.0, square=1000.0)
    [age] = chosen(seen(AGE), seen(other), seen(SeenColumn("age")))
    assert 170 / 15 == age.mean
    assert math.isclose(math.sqrt(2040 / 15 - (170 / 15) ** 2), age.deviation)
    assert [Column("age")] == list(chosen(seen(AGE), seen(AGE), standardise=False))
    assert [Column("age")] == list(chosen(seen(SeenColumn("age"))))


def test_a_column_that_never_changes_is_not_blown_up() -> None:
    """Its deviation is 1."""
    [column] = chosen(seen(SeenColumn("c", count=5, total=15.0, square=45.0)))
    assert (3.0, 1.0) == (column.mean, column.deviation)


def test_a_column_of_most_sites_is_the_runs() -> None:
    """It is missing at the others; one that only some have is left out, and both are said."""
    sites = {"a": seen(AGE, WARD), "b": seen(AGE, WARD), "c": seen(WARD, SeenColumn("agee"))}
    table = choose_table(sites, fewest_sites=1)
    assert [("age", True), ("ward", False)] == [(column.name, column.missing) for column in table]
    words = explain(sites, table, standardise=True)["columns"]
    assert "'age' is missing at 'c'" in words
    assert "'agee'" in words
    assert ["ward"] == [column.name for column in chosen(seen(AGE, WARD), seen(WARD))], "of two sites both"


def test_missing_values_at_one_site_have_a_place_at_all() -> None:
    """Every site's rows have the same width."""
    [age] = chosen(seen(AGE), seen(replace(AGE, missing=True)))
    assert (True, 2) == (age.missing, age.width)


def test_categories_that_enough_sites_tell() -> None:
    """Of fewer sites that tell any at all, all."""
    other, silent = replace(WARD, categories=("b", "c")), replace(WARD, categories=())
    assert ("a", "b", "c") == chosen(seen(WARD), seen(other))[0].categories
    assert ("b",) == chosen(seen(WARD), seen(other), fewest_sites=2)[0].categories
    assert ("a", "b") == chosen(seen(WARD), seen(silent), fewest_sites=2)[0].categories


def test_categories_are_hashed_where_most_sites_want_it() -> None:
    """Nothing of the others' names is in the run then."""
    hashed = SeenColumn("ward", categorical=True, hashed=16)
    [ward] = chosen(seen(WARD), seen(hashed), seen(replace(hashed, hashed=32)))
    assert (32, ()) == (ward.hashed, ward.categories)
    assert ("a", "b") == chosen(seen(WARD), seen(WARD), seen(hashed))[0].categories


def test_numbers_that_are_categories_elsewhere_are_read_as_such() -> None:
    """At least half of the sites decide; texts where most have numbers are sent away."""
    sites = {"a": seen(replace(WARD, name="age")), "b": seen(AGE)}
    assert choose_table(sites, fewest_sites=1)[0].categorical
    sites["c"] = seen(AGE)
    odd = odd_ones(sites)
    assert ["a"] == list(odd)
    assert "a has texts in its column 'age'; expected: numbers" in odd["a"]
    assert ("b", "c") == judge(sites, wanted=2).fitting


def test_nothing_in_common_is_a_hindrance() -> None:
    """Said before the run begins, and what to do."""
    sites = {"a": seen(AGE), "b": seen(replace(AGE, name="alter"))}
    assert "no column in common" in find_hindrance(sites, fewest_sites=1)
    assert "no column in common" in judge(sites, wanted=2).hindrance
    assert "" == find_hindrance({"a": seen(AGE)}, fewest_sites=1)
    with pytest.raises(DataError, match="become 20020 numbers, 1001 of them the column 'c9'"):
        names = tuple(map(str, range(1000)))
        chosen(seen(*(SeenColumn(f"c{n}", True, categories=names) for n in range(20))))


def test_the_runs_model() -> None:
    """Its samples are as wide as a row becomes; arrays do not go with it."""
    sites = {"a": seen(AGE, WARD), "b": seen(WARD, AGE)}
    model = agree(sites, Wish())
    assert ("table", "mlp", (4,), ()) == (model.kind, model.backbone, model.shape, model.mean)
    assert "store them as files of rows" in odd_ones({**sites, "c": ARRAYS})["c"]
    told = explain(sites, model.table, standardise=True)
    assert {"columns", "missing values", "categories", "scaling"} == set(told)


def test_a_late_site() -> None:
    """Needs the run's columns, unless the run knows rows without one."""
    model = agree({"a": seen(AGE, WARD), "b": seen(AGE, replace(WARD, missing=True))}, Wish())
    fits(seen(AGE), model, "late")
    fits(seen(AGE, WARD, SeenColumn("more")), model, "late")
    for late, words in (
        (seen(WARD), "late has no column 'age', which the run needs"),
        (seen(replace(WARD, name="age")), "late has texts in its column 'age'"),
        (ARRAYS, "the run reads files of rows"),
    ):
        with pytest.raises(Refused, match=words):
            fits(late, model, "late")
    with pytest.raises(Refused, match="the run reads arrays"):
        fits(seen(AGE, WARD), agree({"a": ARRAYS}, Wish()), "late")
