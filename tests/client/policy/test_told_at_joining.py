"""What of a description is told, field by field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.told_at_joining import blur, round_up, trim
from pfl_common.evaluation import vector
from pfl_common.spec import data_description
from pfl_common.spec.hashed_names import hash_name
from pfl_common.spec.run import NOT_SUMMED, Description, Moments
from pfl_common.spec.table_schema import SeenColumn
from tests.client.policy.policies import write_policy

PICTURES = Description(
    (1, 28, 30),
    ("cat", "dog"),
    1234,
    warnings=("12 samples of dog are odd",),
    sizes=((28, 30, 1200), (8, 8, 34)),
    values="wide",
    low=3.0,
    high=900.0,
    moments=Moments(1234 * 840, (1e7,), (1e9,)),
    data="ab12",
)
TEXTS = Description(
    (9,), ("a", "b"), 40, kind="tokens", values="numbers", numbering="words", words=("fever", "cough")
)
ROWS = Description(
    (2,),
    ("a", "b"),
    33,
    kind="table",
    values="numbers",
    table=(
        SeenColumn("age", count=31, total=310.0, square=6200.0),
        SeenColumn("ward", True, categories=("north", "south")),
    ),
)
WINDOWS = Description((2, 40), ("a", "b"), 40, kind="windows", values="numbers", columns=("x", "y"))
SEEN = ROWS.table[0]

RULES = {
    "joining.class_names": (
        'class_names = "hashed"',
        PICTURES,
        {"classes": tuple(sorted(map(hash_name, ("cat", "dog")))), "warnings": ()},
    ),
    "joining.class_names no": ('class_names = "no"', PICTURES, {"classes": (), "warnings": ()}),
    "joining.counts": (
        'counts = "rounded"',
        PICTURES,
        {
            "samples": 2000,
            "sizes": ((28, 30, 2000), (8, 8, 40)),
            "warnings": (),
            "moments": Moments(2000 * 840, (1e7 * (2000 / 1234),), (1e9 * (2000 / 1234),)),
        },
    ),
    "joining.counts none": (
        'counts = "none"',
        PICTURES,
        {"samples": None, "sizes": ((28, 30, 1), (8, 8, 1)), "warnings": (), "moments": NOT_SUMMED},
    ),
    "joining.sizes": ("sizes = false", PICTURES, {"sizes": (), "shape": (1, 1, 1), "moments": NOT_SUMMED}),
    "joining.ranges": ("ranges = false", PICTURES, {"low": 0.0, "high": 0.0, "moments": NOT_SUMMED}),
    "joining.sums": ("sums = false", PICTURES, {"moments": NOT_SUMMED}),
    "joining.sums of columns": (
        "sums = false",
        ROWS,
        {"table": (replace(SEEN, count=0, total=0.0, square=0.0), ROWS.table[1])},
    ),
    "joining.counts of columns": (
        'counts = "rounded"',
        ROWS,
        {
            "samples": 40,
            "table": (replace(SEEN, count=40, total=310 * (40 / 31), square=6200 * (40 / 31)), ROWS.table[1]),
        },
    ),
    "joining.words": ("words = false", TEXTS, {"words": (), "numbering": "withheld"}),
    "joining.columns": ("columns = false", WINDOWS, {"columns": ()}),
    "joining.categories": (
        "categories = false",
        ROWS,
        {"table": (SEEN, replace(ROWS.table[1], categories=()))},
    ),
    "joining.fingerprint": ("fingerprint = false", PICTURES, {"data": ""}),
    "joining.warnings": ("warnings = false", PICTURES, {"warnings": ()}),
}
"""By rule: a line below [joining], a description, and the fields that are told otherwise."""


@pytest.mark.parametrize("case", RULES)
def test_each_rule_changes_its_fields_and_no_other(tmp_path: Path, case: str) -> None:
    """And what is told still is a description that a coordinator takes."""
    line, description, changes = RULES[case]
    told, changed = trim(description, write_policy(tmp_path, f"[joining]\n{line}"))
    assert replace(description, **changes) == told
    assert set(changes) == set(changed)
    data_description.check(told)


@pytest.mark.parametrize("description", [PICTURES, TEXTS, ROWS, WINDOWS])
def test_without_a_rule_all_is_told(tmp_path: Path, description: Description) -> None:
    """Byte for byte."""
    assert (description, ()) == trim(description, write_policy(tmp_path, ""))


def test_everything_withheld_at_once_is_taken_still(tmp_path: Path) -> None:
    """What is left is the kind of the data and the number of channels."""
    names = ("sizes", "ranges", "sums", "words", "columns", "categories", "fingerprint", "warnings")
    lines = ['class_names = "no"', 'counts = "none"', *(f"{name} = false" for name in names)]
    told, _ = trim(PICTURES, write_policy(tmp_path, "[joining]\n" + "\n".join(lines)))
    data_description.check(told)
    bare = Description((1, 1, 1), (), values="wide", moments=NOT_SUMMED)
    assert bare == told


def test_files_of_rows_cannot_do_without_names(tmp_path: Path) -> None:
    """The site says so itself, and names the rule: no coordinator is asked."""
    with pytest.raises(Forbidden, match=r"joining\.columns"):
        trim(ROWS, write_policy(tmp_path, "[joining]\ncolumns = false"))


@pytest.mark.parametrize(
    ("count", "told"), [(0, 0), (1, 10), (10, 10), (11, 20), (99, 100), (100, 100), (101, 200), (1234, 2000)]
)
def test_counts_are_rounded_up(count: int, told: int) -> None:
    """A weight that is capped by what was declared must not be smaller than it."""
    assert told == round_up(count)


def test_scores_of_so_many_samples() -> None:
    """17 of 34 are 20 of 40, or 50 of 100."""
    assert (20, 40) == blur(vector(17, 34, 0.5), "rounded")
    assert (50, 100) == blur(vector(17, 34, 0.5), "none")
