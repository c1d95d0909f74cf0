"""The list of changes is closed: a preset by its name, or steps whose parameters have bounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pfl_common.spec.augmentation import KINDS, MOST_STEPS, PRESETS, Crop, Flip, Rotate, read, tell
from pfl_common.spec.run import RunSpec
from tests.common.spec.test_run import SPEC


def test_a_list_as_toml_has_it() -> None:
    """Names and parameters; what is not said has its default. A preset stays a name until its run is known."""
    assert (Flip(chance=0.3), Crop(padding=2)) == read(
        [{"name": "flip", "chance": 0.3}, {"name": "crop", "padding": 2}]
    )
    assert (Rotate(),) == read([Rotate()])
    assert list(PRESETS) == [read(name) for name in PRESETS]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("flop", "flip"),
        (7, "a preset"),
        ([{"name": "flap"}], "change 1 .* flip"),
        ([{"chance": 1}], "a name for change 1"),
        (["flip"], "a name for change 1"),
        (
            [{"name": "flip"}, {"name": "rotate", "degree": 3}],
            "no 'degree' for 'rotate' .change 2.; .*degrees",
        ),
        ([{"name": "rotate", "degrees": 500}], "'degrees' of 'rotate' .* less than or equal to 180"),
        ([{"name": "crop", "padding": 0}], "'padding' of 'crop'"),
        ([{"name": "noise", "deviation": float("nan")}], "'deviation' of 'noise'"),
        ([{"name": "crop", "fill": "white"}], "'black' or 'mean'"),
        ([{"name": "flip"}] * (MOST_STEPS + 1), f"at most {MOST_STEPS}"),
    ],
)
def test_what_is_wrong_is_told_with_what_there_is(said: object, words: str) -> None:
    """An unknown name, an unknown parameter, a value beyond its bounds, too long a list."""
    with pytest.raises(ValueError, match=words):
        read(said)


def test_a_specification_names_its_changes_where_there_are_some() -> None:
    """Each with all its parameters, so that a later default changes no run; without any the text is as it was."""
    changed = replace(SPEC, augment=tuple(kind() for kind in KINDS.values()))
    back = RunSpec.from_json(changed.to_json())

    assert (changed, changed.hash) == (back, back.hash)
    assert {"name": "flip", "chance": 0.5, "axis": "horizontal"} == json.loads(changed.to_json())["augment"][
        0
    ]
    assert "augment" not in SPEC.to_json()
    with pytest.raises(ValueError, match="augment"):
        RunSpec.from_json(changed.to_json().replace('"flip"', '"flap"'))


def test_a_list_in_words() -> None:
    """With the parameters."""
    assert "flip (chance 0.5, axis horizontal)" == tell((Flip(),))
    assert "none" == tell(())
