"""Whether a run can go on with another's models: the first thing that differs is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from pfl_common.spec.beginning import Beginning, find_misfit
from pfl_common.spec.manifest import Entry
from pfl_common.spec.run import Model, RunSpec

HEAD, BODY = Entry("head.weight", "float32", (3, 2)), Entry("encoder.weight", "float32", (2, 2))
UP = (Entry("sum.encoder.weight", "float32", (2, 2)), Entry("weight.encoder.weight", "int64", ()))
SPEC = RunSpec(
    "run-1",
    "fedper",
    {},
    Model("mlp", (2,), ("a", "b", "c")),
    ("x", "y"),
    rounds=3,
    seed=1,
    manifests={"init": (BODY, HEAD), "train/train/up": UP},
)
BEGINNING = Beginning("run-1", SPEC.hash, 3, "0" * 64)


def test_the_same_run_fits_with_other_settings() -> None:
    """Rounds, rates, sites and data may be others."""
    other = replace(SPEC, id="run-2", rounds=9, settings={"lr": 0.5}, roster=("x", "z"), data={"x": "0"})
    assert "" == find_misfit(SPEC, replace(other, begins_from=BEGINNING))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "fedrep"}, ("fedper", "fedrep")),
        ({"model": Model("mlp", (2,), ("a", "b"))}, ("classes", "a, b, c", "a, b")),
        ({"model": Model("cnn", (2,), ("a", "b", "c"))}, ("network",)),
        ({"manifests": {"init": (BODY, replace(HEAD, shape=(4, 2)))}}, ("head.weight", "(3, 2)", "(4, 2)")),
        ({"manifests": {"init": (BODY,)}}, ("head.weight", "absent")),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, object], words: tuple[str, ...]) -> None:
    """The first thing, with both values."""
    said = find_misfit(SPEC, replace(SPEC, **changed))
    assert [] == [word for word in words if word not in said]


def test_what_stayed_at_the_sites_must_stay() -> None:
    """A run that would send up a tensor that the other kept at its sites does not fit."""
    up = (*UP, Entry("sum.head.weight", "float32", (3, 2)))
    now = replace(SPEC, manifests={"init": (BODY, HEAD), "train/train/up": up})
    assert "sum.head.weight" in find_misfit(SPEC, now)
    assert "" == find_misfit(now, SPEC), "less may go up"


def test_it_is_written_only_where_there_is_one() -> None:
    """The text of a run that begins with first values is what it always was; another's is read back."""
    assert "begins_from" not in SPEC.to_json()
    begun = replace(SPEC, begins_from=BEGINNING)
    assert begun == RunSpec.from_json(begun.to_json())
    assert begun.hash != SPEC.hash


@pytest.mark.parametrize(
    "changed", [{"run": "../x"}, {"spec": "short"}, {"state": "Z" * 64}, {"round": 0}, {"more": 1}]
)
def test_what_comes_over_the_wire_is_checked(changed: dict[str, object]) -> None:
    """A name that is none, a hash that is none, a round that cannot be, a field nobody knows."""
    plain = replace(SPEC, begins_from=BEGINNING).to_json()
    said = {"run": "run-1", "spec": SPEC.hash, "round": 3, "state": "0" * 64} | changed
    text = json.dumps({**json.loads(plain), "begins_from": said})
    with pytest.raises(ValidationError):
        RunSpec.from_json(text)
