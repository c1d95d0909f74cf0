"""What would spoil a sum is refused before it counts."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry
from pfl_common.tensors import codec, pinning
from pfl_common.tensors.check import check_finite, check_update
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.state import State
from tests.common.support.held import Held, Watched

torch.set_num_threads(1)

BOTH = State({"model.w": torch.ones(2), "extra.v": torch.ones(3)})
ONE = State({"model.w": torch.ones(2)})
MANIFEST = pinning.pin([BOTH, ONE])


def to_bytes(state: State, manifest: tuple[Entry, ...]) -> tuple[bytearray, tuple[str, ...]]:
    out = io.BytesIO()
    groups = codec.encode(state, manifest, out)
    return bytearray(out.getvalue()), groups


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_bad_number_is_found(dtype: str, bad: float) -> None:
    """Wherever it stands and whatever the type."""
    value = torch.ones(1000, dtype=codec.DTYPES[dtype])
    check_finite(State({"sum.w": value}))
    value[-1] = bad
    with pytest.raises(Refused) as refused:
        check_finite(State({"sum.w": value}))
    assert "not_finite" == refused.value.code


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_numbers_are_finite(dtype: str) -> None:
    """The square of a large number overflows, the number does not."""
    top = torch.finfo(codec.DTYPES[dtype]).max
    check_finite(State({"sum.w": torch.tensor([top, -top], dtype=codec.DTYPES[dtype])}))


def test_nothing_to_check() -> None:
    """Tensors without numbers, whole numbers and truth values of any pattern are fine."""
    check_finite(
        State(
            {
                "sum.none": torch.zeros(0),
                "show.count": torch.tensor([-(1 << 62)]),
                "show.mask": torch.tensor([True, False]),
                "weight.w": torch.tensor([0, 5]),
            }
        )
    )


def update(**changed: torch.Tensor) -> State:
    """A good update, but for what is changed."""
    good = {
        "show.mask": torch.tensor([True, False]),
        "show.samples": torch.tensor(-4),
        "sum.m": torch.ones(2, 3, dtype=torch.bfloat16),
        "sum.w": torch.full((700_000,), 0.01),
        "weight.m": torch.tensor([1.0, 0.0]),
        "weight.w": torch.tensor(3),
    }
    return State(good | {name.replace("_", ".", 1): value for name, value in changed.items()})


def check(state: State, largest: float | None = None) -> Watched:
    manifest = pinning.pin([state])
    source = Watched(to_bytes(state, manifest)[0])
    check_update(source, manifest, (), largest=largest)
    return source


def test_a_good_update_is_read_once_and_in_parts() -> None:
    """Each byte once; no tensor as a whole."""
    source = check(update())
    assert source.size == source.read
    assert 4 * BLOCK >= source.longest


def spoil(value: float, **kind: torch.dtype) -> torch.Tensor:
    spoilt = torch.full((700_000,), 0.01, **kind)
    spoilt[-3] = value
    return spoilt


BAD = {
    "NaN": ("not_finite", update(sum_w=spoil(float("nan")))),
    "infinity": ("not_finite", update(sum_w=spoil(float("-inf")))),
    "NaN in 16 bits": ("not_finite", update(sum_w=spoil(float("nan"), dtype=torch.float16))),
    "infinity in 64 bits": ("not_finite", update(sum_w=spoil(float("inf"), dtype=torch.float64))),
    "NaN as a weight": ("not_finite", update(weight_m=torch.tensor([1.0, float("nan")]))),
    "NaN shown": ("not_finite", update(show_v=torch.tensor([float("nan")]))),
    "a negative weight": ("weight", update(weight_m=torch.tensor([1.0, -1.0]))),
    "a negative whole weight": ("weight", update(weight_w=torch.tensor(-3))),
    "a weight missing": ("manifest", update(sum_v=torch.ones(1))),
    "a weight alone": ("manifest", update(weight_v=torch.ones(1))),
    "a weight per column": ("manifest", update(weight_m=torch.ones(3))),
    "a weight in 64 bits": ("manifest", update(weight_m=torch.ones(2, dtype=torch.float64))),
    "a counter summed": ("manifest", update(sum_m=torch.ones(2, 3, dtype=torch.int64))),
}


@pytest.mark.parametrize("code, state", BAD.values(), ids=BAD.keys())
def test_what_would_spoil_a_sum_is_refused(code: str, state: State) -> None:
    """One bad number anywhere, or a value that its weight does not fit."""
    with pytest.raises(Refused) as refused:
        check(state)
    assert code == refused.value.code


def test_a_truth_value_of_two_is_refused() -> None:
    """It would be true in one place and false in another."""
    state = State({"show.mask": torch.tensor([True, False])})
    raw, manifest = bytearray(b"\1\2"), pinning.pin([state])
    with pytest.raises(Refused, match="neither 0 nor 1"):
        check_update(Held(raw), manifest, ())


@pytest.mark.parametrize("read", [check_update, lambda *parcel: codec.read(*parcel, "sum")])
def test_size_and_groups_are_checked_before_anything_is_read(read: Callable[..., object]) -> None:
    """A byte too few or too many, a group that is not there or that nobody pinned."""
    for size, groups, code in (
        (7, (), "size"),
        (9, (), "size"),
        (8, ("extra",), "size"),
        (8, ("x",), "groups"),
    ):
        source = Watched(bytes(size))
        with pytest.raises(Refused) as refused:
            read(source, MANIFEST, groups)
        assert (code, 0) == (refused.value.code, source.read)


def test_the_norm_is_of_all_values_together() -> None:
    """The root of 6 x 1 + 700,000 x 0.0001 + 16: weights and what is shown do not count, the last block does. Blocks
    are measured in float32, which is exact to a thousandth.
    """
    state, norm = update(sum_v=torch.tensor([4.0]), weight_v=torch.tensor(99)), np.sqrt(6 + 70 + 16)
    check(state, largest=norm * 1.001)
    with pytest.raises(Refused, match=r"norm is 9\.5[89]"):
        check(state, largest=norm * 0.999)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_norm_that_overflows_is_too_large_and_not_infinite(dtype: str) -> None:
    """The largest number of each type is finite; its square is not, in its own type."""
    top = torch.finfo(codec.DTYPES[dtype]).max
    state = State({"sum.w": torch.tensor([top], dtype=codec.DTYPES[dtype]), "weight.w": torch.tensor(1)})
    check(state)
    with pytest.raises(Refused) as refused:
        check(state, largest=60_000.0)
    assert "norm" == refused.value.code


@pytest.mark.parametrize("weight", [torch.tensor(-1), torch.tensor([1.0, -0.5]), torch.tensor(-(1 << 40))])
def test_a_negative_weight_is_refused(weight: torch.Tensor) -> None:
    """It would take away from others."""
    with pytest.raises(Refused) as refused:
        check_finite(State({"weight.w": weight}))
    assert "weight" == refused.value.code
