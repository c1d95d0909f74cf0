"""A parcel's rows hold its tensors' numbers in their order, whatever is joined, and nothing that does not fit."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn

from pfl_common.spec.manifest import Entry
from pfl_common.tensors import codec, rows
from pfl_common.tensors.pinning import pin
from pfl_common.tensors.rows import find_groups, into_rows
from pfl_common.tensors.small_tensors import SMALL
from pfl_common.tensors.state import State

torch.set_num_threads(1)

WEIGHT = torch.tensor(7)
STATE = State(
    {
        "show.mask": torch.tensor([True, False]),
        "sum.a": torch.arange(6.0).view(2, 3).t(),
        "sum.b": nn.Parameter(torch.tensor([8.0, 9.0])),
        "sum.c": torch.full((SMALL,), 2.0),
        "sum.d": torch.zeros(0, 4),
        "sum.e": torch.tensor(1.5),
        "weight.a": WEIGHT,
        "weight.b": WEIGHT,
        "weight.c": torch.tensor(5),
    }
)
"""A matrix turned round, a parameter, a large one, an empty one, one number; a weight of two names, and another."""


def by_name(state: State) -> dict[str, Tensor]:
    return {
        entry.name: numbers for row in into_rows(state, pin([state]))[1] for entry, numbers in row.pieces()
    }


def test_each_tensor_is_found_in_its_row() -> None:
    """Its numbers in their order, of its own type; a weight under each of its names."""
    found = by_name(STATE)
    assert list(STATE) == list(found)
    for name, value in STATE.items():
        assert value.dtype is found[name].dtype
        assert value.detach().reshape(-1).tolist() == found[name].tolist()


def test_small_neighbours_are_one_row_and_a_large_one_is_looked_at() -> None:
    """By branch and type; nothing asks for a gradient."""
    _, found = into_rows(STATE, pin([STATE]))
    names = [[place.entry.name for place in row.places] for row in found]
    assert [
        ["show.mask"],
        ["sum.a", "sum.b"],
        ["sum.c"],
        ["sum.d", "sum.e"],
        ["weight.a", "weight.b", "weight.c"],
    ] == names
    assert STATE["sum.c"].data_ptr() == found[2].numbers.data_ptr()
    assert not any(row.numbers.requires_grad for row in found)


def test_a_row_ends_after_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many small ones there are."""
    state = State({f"sum.{place}": torch.full((3,), float(place)) for place in range(5)})
    whole = by_name(state)
    monkeypatch.setattr(rows, "BLOCK", 5)
    _, found = into_rows(state, pin([state]))
    assert [2, 2, 1] == [len(row.places) for row in found]
    assert {name: value.tolist() for name, value in whole.items()} == {
        entry.name: numbers.tolist() for row in found for entry, numbers in row.pieces()
    }


def test_the_bytes_are_those_of_each_tensor() -> None:
    """One by one, as it would be without rows."""
    out = io.BytesIO()
    codec.write(into_rows(STATE, pin([STATE]))[1], out)
    assert out.getvalue() == b"".join(
        value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        for value in STATE.values()
    )


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"sum.z": torch.ones(1)}, r"does not match its manifest in \['sum\.z'\]"),
        ({"sum.b": torch.ones(3)}, r"'sum\.b' is float32\(3,\), manifest says"),
        ({"sum.b": torch.ones(2, dtype=torch.float64)}, r"'sum\.b' is float64\(2,\), manifest says"),
    ],
)
def test_what_does_not_fit_is_an_error(changed: dict[str, Tensor], words: str) -> None:
    """A name too many, another shape, another type."""
    with pytest.raises(ValueError, match=words):
        into_rows(STATE | changed, pin([STATE]))


def test_groups_are_those_that_are_there() -> None:
    """Of a manifest's optional groups."""
    manifest = (Entry("a", "float32", ()), Entry("g.b", "float32", (), "g"), Entry("h.c", "float32", (), "h"))
    state = State({"a": torch.ones(()), "h.c": torch.ones(())})
    assert ("h",) == find_groups(state, manifest) == into_rows(state, manifest)[0]
