"""Neighbours in a parcel that are summed as one vector: the bits are those of one by one."""

from __future__ import annotations

import io

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry
from pfl_common.tensors import codec, pinning
from pfl_common.tensors.fused_sums import columns
from pfl_common.tensors.layout import lay_out, stretches
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Weighted
from pfl_common.tensors.update_check import check_update, check_values, find_infinite
from tests.common.support.held import Held

NAMES = ("a", "b.c", "b.d", "e")


def update(seed: int, weights: dict[str, torch.Tensor]) -> State:
    """Values of very different size under each name, with these weights."""
    chance = torch.Generator().manual_seed(seed)
    values = {
        name: torch.randn(3, 5 + place, generator=chance) * 10**seed for place, name in enumerate(NAMES)
    }
    return State(values).within("sum") | State(weights).within("weight")


def parcel(state: State) -> tuple[Held, tuple[Entry, ...]]:
    manifest, out = pinning.pin([state]), io.BytesIO()
    codec.encode(state, manifest, out)
    return Held(out.getvalue()), manifest


@pytest.mark.parametrize("weights", [[3, 3, 3, 3], [3, 3, 4, 3]])
def test_a_column_gives_the_bits_of_single_names(weights: list[int]) -> None:
    """Whether all weights are alike or not, in a fresh sum and in one whose memory is used again."""
    together, alone = Sum(), Sum()
    for _ in range(2):
        together.begin()
        alone.begin()
        for seed in (0, 3, 1):
            state = update(
                seed, {name: torch.tensor(w + seed) for name, w in zip(NAMES, weights, strict=True)}
            )
            together.add_parcel(*parcel(state), ())
            alone.add({name: Weighted(state[f"sum.{name}"], state[f"weight.{name}"]) for name in NAMES})
        for name in NAMES:
            assert torch.equal(alone.totals[name], together.totals[name])
            assert torch.equal(alone.weights[name], together.weights[name])


def test_single_names_and_columns_share_a_sum() -> None:
    """A name that has its total already keeps it, and another shape is an error and no second total."""
    total, state = Sum(), update(1, {name: torch.tensor(2) for name in NAMES})
    total.add({"e": Weighted(state["sum.e"], state["weight.e"])})
    total.add_parcel(*parcel(state), ())
    assert torch.equal(4 * state["sum.e"].double(), total.totals["e"])
    assert torch.equal(2 * state["sum.a"].double(), total.totals["a"])
    other = State({**state, "sum.b.c": torch.ones(2)})
    with pytest.raises(ValueError, match="was added with shape"):
        total.add_parcel(*parcel(other), ())


def test_which_are_neighbours() -> None:
    """Of one type, with one number as weight, and nothing between them."""
    entries = (
        Entry("show.x", "float32", (2,)),
        Entry("sum.a", "float32", (2,)),
        Entry("sum.b", "float32", (3, 1)),
        Entry("sum.c", "float16", (2,)),
        Entry("sum.d", "float16", (2,)),
        Entry("weight.a", "int64", ()),
        Entry("weight.b", "int64", ()),
        Entry("weight.c", "int64", ()),
        Entry("weight.d", "int64", (2,)),
    )
    places = lay_out(entries, ())
    assert [("a", "b"), ("c",), ("d",)] == [column.names for column in columns(places)]
    assert [2, 5, 4, 5] == [stretch.whole.count for stretch in stretches(places)]


def test_the_tensor_that_cannot_be_used_is_named() -> None:
    """Neighbours are looked through together; what is wrong is still said of one of them."""
    state = update(1, {name: torch.tensor(2) for name in NAMES})
    state["sum.b.d"][1, 1] = float("nan")
    with pytest.raises(Refused, match=r"'sum\.b\.d' holds NaN"):
        check_update(*parcel(state), ())
    with pytest.raises(Refused, match=r"'sum\.b\.d' holds NaN"):
        check_values(state)
    assert "sum.b.d" == find_infinite(state)
