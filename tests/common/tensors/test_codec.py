"""Bytes and back: what comes out is what went in, and nothing that does not fit is taken or sent."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry
from pfl_common.tensors import codec, pinning
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Up, Weighted, flatten, unflatten
from tests.common.support.held import Held, Watched

torch.set_num_threads(1)


def values(dtype: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Any bytes at all: a codec does not care what they mean."""
    kind = codec.DTYPES[dtype]
    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 256, count, dtype=np.uint8)
    if not count:
        return torch.zeros(shape, dtype=kind)
    return torch.from_numpy(raw).view(kind).reshape(shape)


def to_bytes(state: State, manifest: tuple[Entry, ...]) -> tuple[bytearray, tuple[str, ...]]:
    out = io.BytesIO()
    groups = codec.encode(state, manifest, out)
    return bytearray(out.getvalue()), groups


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal type, shape and bytes: NaN is equal to the same NaN."""
    return (left.dtype, left.shape) == (right.dtype, right.shape) and left.contiguous().reshape(-1).view(
        torch.uint8
    ).tolist() == right.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 3), (0, 4), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("dtype", codec.DTYPES)
def test_there_and_back(dtype: str, shape: tuple[int, ...]) -> None:
    """Every type of number in every kind of shape, bit for bit."""
    state = State({"w": values(dtype, shape, 1)})
    manifest = pinning.pin([state])
    raw, groups = to_bytes(state, manifest)
    assert codec.size_of(manifest, groups) == len(raw)
    assert same(state["w"], codec.decode(raw, manifest, groups)["w"])


parcels = st.dictionaries(
    st.sampled_from(["a.w", "a.b", "b.w", "c", "d.e.f"]),
    st.tuples(
        st.sampled_from(sorted(codec.DTYPES)), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 99)
    ),
)


@given(parcel=parcels)
def test_any_mixture_comes_back(parcel: dict[str, tuple[str, list[int], int]]) -> None:
    """Types of one, two, four and eight bytes in any order: tensors that begin at odd places too."""
    state = State({name: values(dtype, tuple(shape), seed) for name, (dtype, shape, seed) in parcel.items()})
    manifest = pinning.pin([state])
    raw, groups = to_bytes(state, manifest)
    back = codec.decode(raw, manifest, groups)
    assert state.keys() == back.keys()
    assert all(same(value, back[name]) for name, value in state.items())
    assert all(value.data_ptr() % value.itemsize == 0 for value in back.values()), (
        "aligned, as kernels expect"
    )


@given(parcel=parcels, order=st.randoms(use_true_random=False))
def test_names_give_the_order(
    parcel: dict[str, tuple[str, list[int], int]], order: np.random.Generator
) -> None:
    """The same tensors, put together in another order, are the same bytes."""
    state = {name: values(dtype, tuple(shape), seed) for name, (dtype, shape, seed) in parcel.items()}
    shuffled = list(state.items())
    order.shuffle(shuffled)
    manifest = pinning.pin([State(state)])
    assert to_bytes(State(state), manifest) == to_bytes(State(dict(shuffled)), manifest)


def test_bytes_as_they_lie() -> None:
    """Little-endian, sorted by name, without gaps: so another program can read them."""
    state = State({"b": torch.tensor([1.0]), "a": torch.tensor([258], dtype=torch.int32)})
    raw, _ = to_bytes(state, pinning.pin([state]))
    assert bytes.fromhex("02010000 0000803f") == bytes(raw)


def test_a_view_with_gaps_is_packed() -> None:
    """A transposed matrix goes out in the order of its own rows."""
    state = State({"w": torch.arange(6.0).reshape(2, 3).T})
    raw, groups = to_bytes(state, pinning.pin([state]))
    assert [0.0, 3.0, 1.0, 4.0, 2.0, 5.0] == np.frombuffer(bytes(raw), "<f4").tolist()
    assert torch.equal(state["w"], codec.decode(raw, pinning.pin([state]), groups)["w"])


BOTH = State({"model.w": torch.ones(2), "extra.v": torch.ones(3)})
ONE = State({"model.w": torch.ones(2)})
MANIFEST = pinning.pin([BOTH, ONE])


def test_a_branch_that_some_lack_is_a_group() -> None:
    """What is in every parcel has no group."""
    assert {"model.w": "", "extra.v": "extra"} == {entry.name: entry.group for entry in MANIFEST}
    assert [8, 20] == [codec.size_of(MANIFEST, groups) for groups in ((), ("extra",))]


@pytest.mark.parametrize("state, groups", [(ONE, ()), (BOTH, ("extra",))])
def test_an_absent_group_takes_no_bytes(state: State, groups: tuple[str, ...]) -> None:
    """The header says which groups are there, and only those are read."""
    raw, present = to_bytes(state, MANIFEST)
    assert groups == present
    assert state.keys() == codec.decode(raw, MANIFEST, present).keys()


@pytest.mark.parametrize(
    "state, words",
    [
        (State({"model.w": torch.ones(2), "secret": torch.ones(1)}), r"\['secret'\]"),
        (State({}), r"\['model.w'\]"),
        (State({"model.w": torch.ones(2), "extra.other": torch.ones(1)}), r"\['extra.other'\]"),
        (State({"model.w": torch.ones(3)}), "'model.w' is float32"),
        (State({"model.w": torch.ones(2, dtype=torch.float64)}), "'model.w' is float64"),
        (State({"model.w": torch.ones(2, 1)}), "'model.w' is float32"),
    ],
)
def test_nothing_else_is_sent(state: State, words: str) -> None:
    """A name too many, too few, another shape or type: the sender stops, whatever the method meant."""
    with pytest.raises(ValueError, match=words):
        to_bytes(state, MANIFEST)


def test_half_a_group_is_not_sent() -> None:
    """A group is there as a whole or not at all."""
    both = State({"g.a": torch.ones(1), "g.b": torch.ones(1), "w": torch.ones(1)})
    manifest = pinning.pin([both, State({"w": torch.ones(1)})])
    with pytest.raises(ValueError, match=r"g\.b"):
        to_bytes(State({"g.a": torch.ones(1), "w": torch.ones(1)}), manifest)


@pytest.mark.parametrize("size", [0, 7, 9, 20])
def test_a_wrong_size_is_refused(size: int) -> None:
    """Neither short nor long is read, not even in part."""
    with pytest.raises(Refused) as refused:
        codec.decode(bytearray(size), MANIFEST, ())
    assert ("size", f"the parcel has {size} bytes, the manifest says 8") == (
        refused.value.code,
        refused.value.words,
    )


def test_a_group_nobody_pinned_is_refused() -> None:
    """A header cannot invent tensors."""
    with pytest.raises(Refused) as refused:
        codec.decode(bytearray(8), MANIFEST, ("other",))
    assert "groups" == refused.value.code


def test_a_mapped_file_is_not_copied(tmp_path: Path) -> None:
    """Tensors look into the buffer: a change of the buffer is seen, so nothing was read whole."""
    raw, groups = to_bytes(ONE, MANIFEST)
    state = codec.decode(raw, MANIFEST, groups)
    raw[:4] = np.float32(7).tobytes()
    assert [7.0, 1.0] == state["model.w"].tolist()
    file = tmp_path / "parcel"
    file.write_bytes(raw)
    mapped = np.memmap(file, dtype=np.uint8, mode="c")
    assert [7.0, 1.0] == codec.decode(memoryview(mapped), MANIFEST, groups)["model.w"].tolist()


def test_an_update_as_one_state() -> None:
    """Values, weights and what is shown keep their names, each under its own branch."""
    up = Up({"w": Weighted(torch.ones(2), torch.tensor(3))}, State({"mask": torch.ones(1)}))
    flat = flatten(up)
    assert {"sum.w", "weight.w", "show.mask"} == flat.keys()
    back = unflatten(flat)
    assert torch.equal(back.summed["w"].value, torch.ones(2))
    assert 3 == int(back.summed["w"].weight)
    assert {"mask"} == back.shown.keys()


def part(state: State, prefix: str) -> State:
    raw, groups = to_bytes(state, pinning.pin([state]))
    return codec.read(Held(raw), pinning.pin([state]), groups, prefix)


@given(parcel=parcels)
def test_a_branch_is_read_alone(parcel: dict[str, tuple[str, list[int], int]]) -> None:
    """Its tensors are those of the whole parcel, under their names without the branch's."""
    state = State({name: values(dtype, tuple(shape), seed) for name, (dtype, shape, seed) in parcel.items()})
    for prefix in ("a", "b", "d.e", "c", "x"):
        found = part(state, prefix)
        assert state.under(prefix).keys() == found.keys()
        assert all(same(value, found[name]) for name, value in state.under(prefix).items())


def test_nothing_but_the_branch_is_read() -> None:
    """A site's whole update is not opened to look at its mask."""
    state = State({"show.mask": torch.ones(3), "sum.w": torch.ones(1000), "weight.w": torch.tensor(1)})
    manifest = pinning.pin([state])
    source = Watched(to_bytes(state, manifest)[0])
    codec.read(source, manifest, (), "show")
    assert 12 == source.read
