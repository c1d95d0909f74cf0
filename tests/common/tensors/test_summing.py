"""The sum gives the numbers one gets by hand, and the same bits wherever the same updates are added."""

from __future__ import annotations

import io
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pfl_common.spec.manifest import Manifest
from pfl_common.tensors import codec, mapped, pinning, summing
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Up, Weighted, flatten
from tests.common.support.held import Held

torch.set_num_threads(1)

Terms = list[tuple[np.ndarray, np.ndarray]]


def fold(terms: Terms) -> Sum:
    total = Sum()
    for value, weight in terms:
        total.add({"w": Weighted(torch.from_numpy(np.array(value)), torch.from_numpy(np.array(weight)))})
    return total


def oracle(terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """Totals and weights in numpy's float64, one site after the other."""
    value, weight = terms[0]
    total, weights = np.zeros(value.shape), np.zeros(weight.shape)
    for value, weight in terms:
        trailing = (1,) * (value.ndim - weight.ndim) if weight.ndim else ()
        total = total + value.astype(np.float64) * weight.astype(np.float64).reshape(weight.shape + trailing)
        weights = weights + weight.astype(np.float64)
    return total, weights


def draw(
    seed: int, shape: tuple[int, ...], weight_shape: tuple[int, ...], *, whole: bool, sites: int = 7
) -> Terms:
    """Values of very different size, so that another order of adding would give other bits."""
    chance = np.random.default_rng(seed)
    terms = []
    for _ in range(sites):
        value = chance.normal(size=shape) * 10.0 ** chance.integers(-6, 6, size=shape)
        weight = (
            chance.integers(0, 50_000, weight_shape)
            if whole
            else chance.random(weight_shape).astype(np.float32)
        )
        terms.append((np.asarray(value, dtype=np.float32), np.asarray(weight)))
    return terms


def mean(terms: dict[str, list[tuple[Tensor, Tensor]]], otherwise: dict[str, Tensor]) -> State:
    total = Sum()
    for number in range(len(next(iter(terms.values())))):
        total.add({name: Weighted(*pairs[number]) for name, pairs in terms.items()})
    return total.mean(State(otherwise))


def test_one_weight_for_a_whole_value() -> None:
    """Two sites of 1 and 3 samples: (1*2 + 3*6) / 4 = 5."""
    pairs = [(torch.tensor([2.0, 0.0]), torch.tensor(1)), (torch.tensor([6.0, 4.0]), torch.tensor(3))]

    assert [5.0, 3.0] == mean({"w": pairs}, {"w": torch.zeros(2)})["w"].tolist()


def test_a_weight_per_row_meets_its_row() -> None:
    """A square value, so that a weight meeting the columns would be seen."""
    pairs = [
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0])),
        (torch.tensor([[5.0, 6.0], [7.0, 8.0]]), torch.tensor([3, 2])),
    ]

    assert [[4.0, 5.0], [7.0, 8.0]] == mean({"w": pairs}, {"w": torch.zeros(2, 2)})["w"].tolist()


def test_a_weight_per_element() -> None:
    """A mask: only a site that has an element counts for it."""
    pairs = [
        (torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]])),
        (torch.tensor([[5.0, 6.0]]), torch.tensor([[1.0, 0.5]])),
    ]

    assert [[3.0, 6.0]] == mean({"w": pairs}, {"w": torch.zeros(1, 2)})["w"].tolist()


def test_a_single_number() -> None:
    """A value without dimensions is averaged like any other."""
    pairs = [(torch.tensor(1.0), torch.tensor(1)), (torch.tensor(2.0), torch.tensor(3))]

    assert 1.75 == mean({"s": pairs}, {"s": torch.tensor(0.0)})["s"].item()


def test_weight_zero_keeps_what_was() -> None:
    """A row nobody counted stays to the bit, though a value was sent for it."""
    kept = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    pairs = [(torch.full((2, 2), 9.0), torch.tensor([0, 4])), (torch.full((2, 2), 9.0), torch.tensor([0, 1]))]

    result = mean({"w": pairs}, {"w": kept})["w"]

    assert torch.equal(kept[0], result[0])
    assert [9.0, 9.0] == result[1].tolist()


def test_names_are_those_of_the_state() -> None:
    """What nobody sent stays; what was sent under another name does not enter."""
    pairs = [(torch.tensor([2.0]), torch.tensor(1))]

    result = mean({"w": pairs, "stranger": pairs}, {"w": torch.zeros(1), "quiet": torch.tensor([7.0])})

    assert {"w": [2.0], "quiet": [7.0]} == {name: value.tolist() for name, value in result.items()}


def test_an_empty_sum_changes_nothing_and_keeps_references() -> None:
    """Without a counted site the state is what it was, kept updates included."""
    before = State({"w": torch.tensor([1.5])}, kept={"a": object()})

    after = Sum().mean(before)

    assert torch.equal(before["w"], after["w"])
    assert before.kept == after.kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_has_the_type_of_the_state(dtype: torch.dtype) -> None:
    """Whatever is inside, outside a value keeps its type."""
    pairs = [(torch.ones(2, dtype=dtype), torch.tensor(2))]

    assert dtype == mean({"w": pairs}, {"w": torch.zeros(2, dtype=dtype)})["w"].dtype


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    shape=st.sampled_from([(), (1,), (5,), (3, 4), (4, 4), (3, 2, 5)]),
    spread=st.sampled_from(["one", "rows", "elements"]),
    whole=st.booleans(),
)
def test_totals_and_mean_equal_the_oracle_to_the_bit(
    seed: int, shape: tuple[int, ...], spread: str, whole: bool
) -> None:
    """Each product is exact, each addition rounds once, in the order of the sites."""
    weight_shape = {"one": (), "rows": shape[:1], "elements": shape}[spread]
    terms = draw(seed, shape, weight_shape, whole=whole)
    total, weights = oracle(terms)

    result = fold(terms)

    assert np.array_equal(total, result.totals["w"].numpy())
    assert np.array_equal(weights, result.weights["w"].numpy())
    divisor = weights.reshape(weights.shape + ((1,) * (total.ndim - weights.ndim) if weights.ndim else ()))
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(divisor != 0, total / divisor, -1.0).astype(np.float32)
    assert np.array_equal(expected, result.mean(State({"w": torch.full(shape, -1.0)}))["w"].numpy())


KINDS = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
WEIGHTS = {
    "bool": torch.bool,
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
}


def term(seed: int, shape: tuple[int, ...], spread: str, kinds: tuple[str, str]) -> Weighted:
    """A value with weights, some of them zero."""
    chance, weight_shape = (
        torch.Generator().manual_seed(seed),
        {"one": (), "rows": shape[:1], "elements": shape}[spread],
    )
    value = torch.randn(shape, generator=chance, dtype=torch.float64) * 37
    weight = (
        torch.rand(weight_shape, generator=chance) * 9 * torch.randint(0, 2, weight_shape, generator=chance)
    )
    return Weighted(value.to(KINDS[kinds[0]]), weight.to(WEIGHTS[kinds[1]]))


terms_drawn = st.dictionaries(
    st.sampled_from(["a", "b.c", "d"]),
    st.tuples(
        st.sampled_from([(), (0,), (1,), (5,), (3, 4), (2, 0), (0, 2), (4, 4), (3, 2, 5), (2, 40)]),
        st.sampled_from(["one", "rows", "elements"]),
        st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(WEIGHTS))),
    ),
    min_size=1,
)


@settings(max_examples=200, deadline=None)
@given(drawn=terms_drawn, seed=st.integers(0, 2**31), block=st.sampled_from([1, 3, 7, 16, 1 << 18]))
def test_a_parcel_adds_the_same_bits_as_its_terms(drawn: dict, seed: int, block: int) -> None:
    """Read block by block from its bytes, an update counts for exactly what its tensors would."""
    whole, parts = Sum(), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summing, "BLOCK", block)
        parts = Sum()
        for site in range(3):
            up = Up(
                {name: term(seed + site, *words) for name, words in drawn.items()},
                State({"x": torch.ones(3)}),
            )
            whole.add(up.summed)
            parts.add_parcel(*write_parcel(up))
    for one, other in ((whole.totals, parts.totals), (whole.weights, parts.weights)):
        assert one.keys() == other.keys()
        assert all(one[name].numpy().tobytes() == other[name].numpy().tobytes() for name in one)


def write_parcel(up: Up) -> tuple[Held, Manifest, tuple[str, ...]]:
    state, out = flatten(up), io.BytesIO()
    manifest = pinning.pin([state])
    groups = codec.encode(state, manifest, out)
    return Held(out.getvalue()), manifest, groups


@pytest.mark.parametrize("spread", ["one", "rows", "elements"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_long_parcel_adds_the_same_bits(kind: str, spread: str) -> None:
    """More than one block of the size that is really used; rows that are longer than it too."""
    whole, parts = Sum(), Sum()
    for site in range(2):
        shapes = {
            "wide": (2, summing.BLOCK + 9),
            "long": (summing.BLOCK + 11, 1),
            "rows": (3, summing.BLOCK // 2 - 1),
        }
        up = Up({name: term(site, shape, spread, (kind, "float32")) for name, shape in shapes.items()})
        whole.add(up.summed)
        parts.add_parcel(*write_parcel(up))
    for name, total in whole.totals.items():
        assert torch.equal(total, parts.totals[name])
        assert torch.equal(whole.weights[name], parts.weights[name])


def test_a_parcel_whose_weights_do_not_fit_is_not_added() -> None:
    """Not even in part: it is looked at before the first number is read."""
    state = State(
        {
            "sum.a": torch.ones(2),
            "weight.a": torch.tensor(1),
            "sum.b": torch.ones(2),
            "weight.b": torch.ones(3),
        }
    )
    manifest, out, total = pinning.pin([state]), io.BytesIO(), Sum()
    codec.encode(state, manifest, out)
    with pytest.raises(ValueError, match="one per row"):
        total.add_parcel(Held(out.getvalue()), manifest, ())
    assert {} == dict(total.totals)


@pytest.mark.parametrize("change", [(torch.ones(3), torch.tensor(1)), (torch.ones(2), torch.tensor([1, 1]))])
def test_a_shape_that_changes_between_sites_is_an_error(change: tuple[Tensor, Tensor]) -> None:
    """Nothing is broadcast by chance, from one site to the next neither."""
    total = Sum()
    total.add({"w": Weighted(torch.ones(2), torch.tensor(1))})
    with pytest.raises(ValueError, match="'w' was added with shape"):
        total.add({"w": Weighted(*change)})
    with pytest.raises(ValueError, match=r"'w' has shape \(2, 1\)"):
        total.mean(State({"w": torch.ones(2, 1)}))


@settings(max_examples=60, deadline=None)
@given(drawn=terms_drawn, seed=st.integers(0, 2**31), block=st.sampled_from([1, 3, 7, 1 << 18]))
def test_a_mean_in_a_file_is_the_mean(drawn: dict, seed: int, block: int) -> None:
    """Whether it lies in memory or in a file, and where blocks end, changes no bit of it."""
    otherwise = State(
        {
            name: (torch.arange(prod(words[0])) - 0.3).reshape(words[0]).to(KINDS[words[2][0]])
            for name, words in drawn.items()
        }
    )
    otherwise |= {"count": torch.tensor([5])}
    plain = Sum()
    plain.add({name: term(seed, *words) for name, words in drawn.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summing, "BLOCK", block)
        patch.setattr(mapped, "LARGE", 0)
        total = Sum()
        total.add({name: term(seed, *words) for name, words in drawn.items()})
        one, other = plain.mean(otherwise), total.mean(otherwise)
    assert otherwise.keys() == one.keys() == other.keys()
    for name, value in one.items():
        expected = by_hand(plain, name, otherwise[name])
        assert value.dtype == other[name].dtype == otherwise[name].dtype
        assert torch.equal(expected, value)
        assert torch.equal(expected, other[name])


def by_hand(total: Sum, name: str, otherwise: Tensor) -> Tensor:
    """Each number by itself."""
    if name not in total.totals:
        return otherwise
    value, weight = total.totals[name], total.weights[name]
    if weight.dim():
        weight = weight.reshape(weight.shape + (1,) * (value.dim() - weight.dim()))
    quotient = (value / torch.where(weight != 0, weight, 1.0)).to(otherwise.dtype)
    return torch.where((weight != 0).expand_as(value), quotient, otherwise)


def test_the_order_of_the_sites_shows() -> None:
    """The caller's order decides the bits: so updates are folded in site order, not as they arrive."""
    terms = [(np.array([value], dtype=np.float32), np.array(1)) for value in (1e16, 1.0, -1e16)]

    forward, backward = fold(terms), fold([terms[0], terms[2], terms[1]])

    assert ([0.0], [1.0]) == (forward.totals["w"].tolist(), backward.totals["w"].tolist())


def test_names_may_come_in_any_order() -> None:
    """A State has no order, so neither has what is added."""
    one, two = Sum(), Sum()
    terms = {name: Weighted(torch.tensor([float(i)]), torch.tensor(1)) for i, name in enumerate("abc")}
    one.add(terms)
    two.add(dict(reversed(terms.items())))

    assert list(one.totals.items()) == list(two.totals.items())


@pytest.mark.parametrize("block", [1, 2, 7, 8, 1 << 18])
@pytest.mark.parametrize(
    ("shape", "weight_shape"), [((23,), ()), ((23,), (23,)), ((5, 9), (5,)), ((5, 9), (5, 9)), ((5, 9), ())]
)
def test_blocks_do_not_show(
    monkeypatch: pytest.MonkeyPatch, block: int, shape: tuple[int, ...], weight_shape: tuple[int, ...]
) -> None:
    """Where a block ends changes no bit, also within a row and for a last block that is not full."""
    monkeypatch.setattr(summing, "BLOCK", block)
    terms = draw(5, shape, weight_shape, whole=True)

    expected, result = oracle(terms), fold(terms)
    assert np.array_equal(expected[0], result.totals["w"].numpy())
    assert np.array_equal(expected[1], result.weights["w"].numpy())


def test_a_value_longer_than_the_real_block() -> None:
    """The block as it is set is smaller than the models we train."""
    terms = draw(6, (summing.BLOCK + 3,), (), whole=False, sites=2)

    assert np.array_equal(oracle(terms)[0], fold(terms).totals["w"].numpy())


def test_a_value_that_lies_crosswise_in_memory() -> None:
    """A transposed tensor is read by its places, not by its memory."""
    value = torch.arange(6.0).reshape(2, 3).T

    total = Sum()
    total.add({"w": Weighted(value, torch.tensor([1, 10, 100])), "v": Weighted(value, torch.tensor(2))})

    assert [[0.0, 3.0], [10.0, 40.0], [200.0, 500.0]] == total.totals["w"].tolist()
    assert (2 * value.double()).tolist() == total.totals["v"].tolist()


def test_adding_leaves_the_terms_alone() -> None:
    """An update may be folded again after a restart, so folding must not change it."""
    value, weight = torch.tensor([1.0, 2.0]), torch.tensor([3, 4])
    total = Sum()
    for _ in range(2):
        total.add({"w": Weighted(value, weight)})

    assert ([1.0, 2.0], [3, 4]) == (value.tolist(), weight.tolist())
    assert [6.0, 16.0] == total.totals["w"].tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_weight_whose_products_would_round_is_refused(dtype: torch.dtype) -> None:
    """Only integers and float32 are agreed between the sites and the coordinator."""
    with pytest.raises(TypeError, match="integers or float32"):
        Weighted(torch.zeros(2), torch.tensor(1.0, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_counters_are_refused(dtype: torch.dtype) -> None:
    """Integers never travel: a counter times a number of samples is no mean of anything."""
    with pytest.raises(TypeError, match="floating point"):
        Weighted(torch.zeros(2, dtype=dtype), torch.tensor(1))


@pytest.mark.parametrize("shape", [(2,), (1,), (3, 1), (2, 3), (3, 2, 1)])
def test_a_weight_that_fits_neither_row_nor_element_is_refused(shape: tuple[int, ...]) -> None:
    """Nothing is broadcast by chance."""
    with pytest.raises(ValueError, match="one per row or one per element"):
        Weighted(torch.zeros(3, 2), torch.ones(shape))
