"""What would spoil a sum is refused before it counts."""

from __future__ import annotations

import io
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry
from pfl_common.tensors import codec, pinning
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.rows import into_rows
from pfl_common.tensors.state import State
from pfl_common.tensors.update_check import Check, Terms, check_rows, check_update, check_values
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
    check_values(State({"sum.w": value}))
    value[-1] = bad
    with pytest.raises(Refused) as refused:
        check_values(State({"sum.w": value}))
    assert "not_finite" == refused.value.code


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_numbers_are_finite(dtype: str) -> None:
    """The square of a large number overflows, the number does not."""
    top = torch.finfo(codec.DTYPES[dtype]).max
    check_values(State({"sum.w": torch.tensor([top, -top], dtype=codec.DTYPES[dtype])}))


def test_nothing_to_check() -> None:
    """Tensors without numbers, whole numbers and truth values of any pattern are fine."""
    check_values(
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


def check(state: State, largest: float = inf, **terms: Any) -> Watched:
    manifest = pinning.pin([state])
    source = Watched(to_bytes(state, manifest)[0])
    check_update(source, manifest, (), Terms(largest_norm=largest, **terms))
    return source


def test_a_good_update_is_read_once_and_in_parts() -> None:
    """Each byte once; no tensor as a whole."""
    source = check(update())
    assert source.size == source.read
    assert 4 * BLOCK >= source.longest


@pytest.mark.parametrize("step", [1 << 20, 700_001, 3 << 20])
def test_what_is_given_as_it_comes_is_looked_at_alike(step: int) -> None:
    """In pieces of any size: the same norm to the bit, and every number is asked for once."""
    state = update()
    manifest, sent = pinning.pin([state]), {"sum.w": torch.full((700_000,), 0.3)}
    content, terms = memoryview(to_bytes(state, manifest)[0]), Terms(sent=sent)
    looking, at = Check(len(content), manifest, (), terms), 0
    while wanted := looking.wanted[:step]:
        wanted[:] = content[at : at + len(wanted)]
        at += len(wanted)
        looking.advance(len(wanted))
    assert len(content) == at
    assert check_update(Held(bytes(content)), manifest, (), terms) == looking.finish() > 0


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


ALONE = {name: state for name, (code, state) in BAD.items() if code != "manifest"}


@pytest.mark.parametrize("name, state", ALONE.items(), ids=ALONE.keys())
def test_a_site_refuses_before_it_writes_what_the_coordinator_would(name: str, state: State) -> None:
    """The same codes and words for the rows of an update as for its bytes."""
    _, rows = into_rows(state, pinning.pin([state]))
    with pytest.raises(Refused) as here:
        check_rows(rows, Terms())
    with pytest.raises(Refused) as there:
        check(state)
    assert (there.value.code, there.value.words) == (here.value.code, here.value.words)


def test_rows_are_held_to_what_each_tensor_is() -> None:
    """Of a row of several kinds each is looked at as what it is, and the one at fault is named."""
    good = State({"sum.mean": torch.tensor([-1.0, 2.0]), "sum.spread": torch.tensor([1.0, 0.0])})
    terms = Terms({"sum.spread": "variance"})
    for _ in range(2):
        check_rows(into_rows(good, pinning.pin([good]))[1], terms)
    bad = good | {"sum.spread": torch.tensor([1.0, -0.5])}
    with pytest.raises(Refused, match=r"'sum\.spread' holds a negative variance: -0\.5"):
        check_rows(into_rows(bad, pinning.pin([bad]))[1], terms)


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
        check_values(State({"weight.w": weight}))
    assert "weight" == refused.value.code


SUMMED = State(
    {
        "show.counts": torch.tensor([3, 4]),
        "show.far": torch.tensor([1e9]),
        "sum.bn.running_var": torch.tensor([0.5, 1.0]),
        "sum.w": torch.tensor([3.0, 4.0]),
        "weight.bn.running_var": torch.tensor(1),
        "weight.w": torch.tensor(1),
    }
)
QUANTITIES = {
    "show.counts": "count",
    "show.far": "number",
    "sum.bn.running_var": "variance",
    "weight.bn.running_var": "one",
    "weight.w": "one",
}
LIES = {
    "a weight of 1000 where sites count alike": ("weight", "weight.w", torch.tensor(1000)),
    "a weight of 0 where sites count alike": ("weight", "weight.w", torch.tensor(0)),
    "the largest weight": ("weight", "weight.w", torch.tensor(2**63 - 1)),
    "a negative variance": ("value", "sum.bn.running_var", torch.tensor([0.5, -1e-9])),
    "fewer than no samples": ("value", "show.counts", torch.tensor([-359, 4])),
    "more samples than were declared": ("value", "show.counts", torch.tensor([3, 11])),
}


@pytest.mark.parametrize("look", [check, lambda state, **terms: check_values(state, Terms(**terms))])
@pytest.mark.parametrize(("code", "name", "lie"), LIES.values(), ids=LIES.keys())
def test_a_tensor_that_is_not_what_it_should_be(
    look: Callable[..., object], code: str, name: str, lie: torch.Tensor
) -> None:
    """Both sides know what each is, and refuse the same by its name."""
    look(SUMMED, quantities=QUANTITIES, declared=10)
    with pytest.raises(Refused, match=name) as refused:
        look(SUMMED | {name: lie}, quantities=QUANTITIES, declared=10)
    assert code == refused.value.code


def test_a_count_has_two_bounds() -> None:
    """The samples that were declared and the run's largest weight; a site that told none has the second alone."""
    for declared, largest, most in ((10, inf, 10), (10, 7, 7), (None, 9, 9)):
        terms = {"quantities": {"weight.w": "count"}, "declared": declared, "largest_weight": largest}
        check(SUMMED | {"weight.w": torch.tensor(most)}, **terms)
        for wrong in (torch.tensor(most + 1), torch.tensor(0.5), torch.tensor(-1)):
            with pytest.raises(Refused) as refused:
                check(SUMMED | {"weight.w": wrong}, **terms)
            assert "weight" == refused.value.code


def test_a_mask_is_0_or_1() -> None:
    """As bytes, whole numbers or others."""
    for dtype in (torch.float32, torch.int64, torch.uint8):
        state = State({"show.mask": torch.tensor([0, 1, 1], dtype=dtype)})
        check(state, quantities={"show.mask": "mask"})
        with pytest.raises(Refused, match="expected: 0 or 1"):
            check(state.apply(lambda mask: mask * 2), quantities={"show.mask": "mask"})


def test_any_other_weight_has_the_largest() -> None:
    """A method that does not say what its weights are."""
    check(SUMMED | {"weight.w": torch.tensor(0.5)}, largest_weight=10)
    with pytest.raises(Refused):
        check(SUMMED | {"weight.w": torch.tensor(10.5)}, largest_weight=10)


def test_what_is_shown_has_a_norm_too() -> None:
    """A shown model is bounded with what is summed; counts and numbers with bounds of their own are not."""
    shown = SUMMED | {"show.model.w": torch.tensor([12.0])}  # 5 and 12, and the variances
    check(shown, largest=13.1, quantities=QUANTITIES)
    with pytest.raises(Refused) as refused:
        check(shown, largest=12.9, quantities=QUANTITIES)
    assert "norm" == refused.value.code


def test_a_change_is_bounded() -> None:
    """Of what has a counterpart in what was sent: 3, 4 and nothing from 0, 0 and 0.5, 1."""
    sent = {
        "sum.w": torch.zeros(2),
        "sum.bn.running_var": torch.tensor([0.5, 1.0]),
        "sum.other": torch.ones(9),
    }
    check(SUMMED, sent=sent, largest_change=5.01, quantities=QUANTITIES)
    with pytest.raises(Refused, match="change is 5") as refused:
        check(SUMMED, sent=sent, largest_change=4.99, quantities=QUANTITIES)
    assert "change" == refused.value.code
