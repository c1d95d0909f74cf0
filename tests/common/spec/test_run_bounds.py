"""Everything a site would loop over, wait for or make room for by a specification's word has bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace

import pytest

from pfl_common.spec.manifest import Entry
from pfl_common.spec.participation import Participation
from pfl_common.spec.rules import AskedRules, RoundRules, find_out_of_bounds
from pfl_common.spec.run import Kind, Model, RunSpec, Weights
from pfl_common.spec.run_bounds import LARGEST_SAMPLE, OutOfBounds, check_spec
from pfl_common.spec.table_schema import Column

ENTRY = Entry("encoder.weight", "float32", (2,))
MANIFESTS = {f"{kind}/train/{way}": (ENTRY,) for kind in Kind for way in ("down", "up")} | {"init": (ENTRY,)}
MODEL = Model("mlp", (1, 4, 4), ("a", "b"), kind="image", high=255.0)
SPEC = RunSpec(
    "run-1",
    "fedavg",
    {"batch": 8, "lr": 0.1, "personal": [True, False]},
    MODEL,
    ("site-a",),
    rounds=3,
    seed=7,
    manifests=MANIFESTS,
    data={"site-a": "ab" * 32},
    chosen={"size": "4 x 4"},
)
TABLE = Model(
    "mlp", (4,), ("a", "b"), kind="table", table=(Column("age"), Column("ward", True, categories=("x", "y")))
)


def refuse(spec: RunSpec) -> OutOfBounds:
    """What is wrong with it, in words that any terminal can show."""
    with pytest.raises(OutOfBounds) as error:
        check_spec(spec)
    assert error.value.seen.isprintable()
    assert error.value.expected
    assert len(error.value.seen) < 300
    return error.value


@pytest.mark.parametrize(
    "true",
    [
        SPEC,
        replace(SPEC, model=TABLE),
        replace(SPEC, model=replace(MODEL, backbone="torchvision:resnet18", mean=(0.5,), deviation=(0.2,))),
        replace(SPEC, participation=Participation.parse("0.1..1.0", drop=0.2), quorum=0.5),
        replace(SPEC, weights=Weights("resnet18.pth", "0" * 64, "1" * 64), frozen=("encoder.conv1",)),
        replace(SPEC, roster=(), data={}),
    ],
)
def test_what_a_coordinator_says(true: RunSpec) -> None:
    """An honest one is within bounds."""
    check_spec(true)


OUTSIDE: Mapping[str, tuple[object, ...]] = {
    "rounds": (0, -1, 10**7),
    "seed": (-1, 2**60),
    "quorum": (0.0, 7.0, math.nan),
    "round_seconds": (0.0, -1.0, math.inf, math.nan),
    "lease_seconds": (0.0, -1.0, math.inf, math.nan),
    "straggler": (-1.0, 2000.0, math.inf, math.nan),
    "evaluate_every": (0, -3),
    "largest_norm": (-1.0, math.nan),
    "largest_change": (0.0, -1.0, math.inf, math.nan),
    "change_factor": (-1.0, math.inf, math.nan),
    "largest_weight": (0.0, math.inf, math.nan),
    "robust": ("mean",),
    "hostile_share": (0.0, 0.5, math.nan),
    "threads": (0, -1, 100_000),
    "validation": (-0.1, 0.9, math.nan),
    "patience": (-1,),
    "candidates": ("everybody",),
    "precision": ("int1",),
    "memory_format": ("blocked",),
    "keep": ("all",),
    "encoding": ("int4", "topk:0.9", "int8:up"),
    "downlink": ("int8", ""),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, own in OUTSIDE.items() for value in own])
def test_a_rule_out_of_bounds(name: str, value: object) -> None:
    """Each rule is held to what could have been asked for."""
    spec = replace(SPEC, **{name: value})
    found = find_out_of_bounds(spec)
    assert found is not None
    assert (name, repr(value)) == (found[0], repr(found[1]))
    assert name in refuse(spec).seen


def test_a_form_that_the_encoding_does_not_give() -> None:
    """A run that says float32 rounds nothing, and no run rounds its first model."""
    rounded = Entry("encoder.weight", "bf16", (64,))
    for key, encoding in (("train/train/down", "float32"), ("init", "bf16")):
        spec = replace(SPEC, manifests={**MANIFESTS, key: (rounded,)}, encoding=encoding)
        assert f"'encoder.weight' as bf16 in '{key}', under encoding {encoding}" == refuse(spec).seen


def test_every_rule_is_held_to_its_bounds() -> None:
    """A rule that is added is checked by itself; the two that are pinned otherwise are checked below."""
    assert OUTSIDE.keys() == {one.name for one in fields(RoundRules)}
    assert {one.name for one in fields(AskedRules)} - OUTSIDE.keys() == {"participation", "drop"}
    assert find_out_of_bounds(SPEC) is None


ODD = "a\x1b[2J\u202e"


@pytest.mark.parametrize(
    "changed",
    [
        {"participation": Participation(0.0, 0.0)},
        {"participation": Participation(0.5, 2.0)},
        {"participation": Participation(drop=1.0)},
        {"participation": Participation(fixed=("../x",))},
        {"method": "../evil"},
        {"method": "os.system"},
        {"method": ODD},
        {"settings": {"batch": 10**12}},
        {"settings": {"epochs": 0}},
        {"settings": {"lr": math.inf}},
        {"settings": {"lr": math.nan}},
        {"settings": {"batch": 10**400}},
        {"settings": {ODD: 1}},
        {"settings": {f"s{n}": n for n in range(2000)}},
        {"settings": {"a": [[[[[1]]]]]}},
        {"settings": {"a": "x" * 20_000}},
        {"roster": ("../x",)},
        {"roster": ("a", "a")},
        {"roster": tuple(f"s{n}" for n in range(100_001))},
        {"data": {"site-a": "no digest"}},
        {"manifests": {}},
        {"manifests": {**MANIFESTS, "train/../up": ()}},
        {"manifests": {**MANIFESTS, "attic": ()}},
        {"manifests": {"init": (ENTRY,), "train/train/down": (ENTRY,)}},
        {"manifests": {**MANIFESTS, "init": (replace(ENTRY, dtype="object"),)}},
        {"manifests": {**MANIFESTS, "init": (replace(ENTRY, shape=(-1, 5)),)}},
        {"manifests": {**MANIFESTS, "init": (replace(ENTRY, shape=(1 << 40, 1 << 40)),)}},
        {"manifests": {**MANIFESTS, "init": (ENTRY, ENTRY)}},
        {"manifests": {**MANIFESTS, "init": (replace(ENTRY, name=ODD),)}},
        {"chosen": {"a": "x" * 20_000}},
        {"versions": {str(n): "" for n in range(2000)}},
        {"weights": Weights("x" * 999, "0" * 64, "1" * 64)},
        {"weights": Weights("x", "no hash", "1" * 64)},
        {"frozen": (ODD,)},
    ],
    ids=str,
)
def test_a_specification_that_no_coordinator_sends(changed: dict[str, object]) -> None:
    """Refused field by field."""
    refuse(replace(SPEC, **changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"backbone": "../../x"},
        {"backbone": ODD},
        {"shape": ()},
        {"shape": (0, 4)},
        {"shape": (-1, -4)},
        {"shape": (1,) * 9},
        {"shape": (LARGEST_SAMPLE, 2)},
        {"shape": (3, 60_000, 60_000)},
        {"classes": ()},
        {"classes": ("a", "a")},
        {"classes": ("a", ODD)},
        {"classes": tuple(map(str, range(300_000)))},
        {"classes": ("x" * 2000,)},
        {"low": math.nan},
        {"low": 9.0, "high": 1.0},
        {"mean": (1.0,)},
        {"mean": (1.0,), "deviation": (0.0,)},
        {"pixel_mean": (math.inf,), "pixel_deviation": (1.0,)},
        {"tokens": -1},
        {"tokens": 10**9},
        {"kind": "tokens", "shape": (1 << 20,)},
        {"words": ("a", "a")},
        {"words": (ODD,)},
        {"columns": (ODD,)},
        {"table": (Column("a", True, hashed=-5),), "shape": (1,)},
        {"table": (Column("a", True, hashed=1 << 30),), "shape": (1,)},
        {"table": (Column("a", deviation=0.0),), "shape": (1,)},
        {"table": (Column("a"),), "shape": (9,)},
    ],
    ids=str,
)
def test_a_model_that_no_site_can_build(changed: dict[str, object]) -> None:
    """Shapes, lists and scalings: what decides how much memory a site would ask for."""
    refuse(replace(SPEC, model=replace(MODEL, **changed)))
