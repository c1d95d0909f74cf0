"""How far an update went, block by block, is what it is as one vector."""

from __future__ import annotations

import io

import pytest
import torch

from pfl_common.tensors import codec, pinning
from pfl_common.tensors.change_norm import Sent, measure_change
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.state import State, flat
from pfl_common.tensors.update_check import Terms, check_update
from tests.common.support.held import Held

torch.set_num_threads(1)


def write(state: State) -> tuple[Held, tuple[object, ...]]:
    out, manifest = io.BytesIO(), pinning.pin([state])
    codec.encode(state, manifest, out)
    return Held(bytearray(out.getvalue())), manifest


def test_the_change_of_many_tensors() -> None:
    """Small ones that are read together, one over several blocks, one that was not sent, one of another shape."""
    chance = torch.Generator().manual_seed(1)
    sizes = {"a": (3,), "b": (2, 5), "c": (BLOCK + 7,), "d": (), "e": (BLOCK - 9,)}
    sent = State({name: torch.randn(size, generator=chance) for name, size in sizes.items()})
    trained = State(
        {name: value + torch.randn(value.shape, generator=chance) for name, value in sent.items()}
    )
    up = trained.within("sum") | trained.apply(lambda value: torch.tensor(1)).within("weight")
    up = up | {"sum.new": torch.ones(5), "weight.new": torch.tensor(1), "show.w.b": trained["b"]}
    compared = sent.within("sum") | {"show.w.b": sent["b"], "sum.new": torch.ones(4)}
    source, manifest = write(up)
    expected = torch.cat([flat(trained) - flat(sent), (trained["b"] - sent["b"]).flatten()]).norm().item()
    assert expected == pytest.approx(measure_change(source, manifest, (), compared), rel=1e-5)
    assert expected == pytest.approx(check_update(source, manifest, (), Terms(sent=compared)), rel=1e-5)
    assert 0 == measure_change(source, manifest, (), {})


def test_what_is_laid_out_for_all_sites_gives_the_same_bits() -> None:
    """Of small tensors together, and of those that are not: too long, not sent, of another length, with an overflow."""
    chance = torch.Generator().manual_seed(2)
    draw = {"a": (3,), "b": (40, 5), "d": (), "e": (1000,)}
    sent = State({f"sum.{name}": torch.randn(size, generator=chance) for name, size in draw.items()})
    up = State({name: value + torch.randn(value.shape, generator=chance) for name, value in sent.items()})
    far = State({**up, "sum.a": torch.full((3,), 3e38)})
    more = up | {"sum.new": torch.ones(5), "sum.z": torch.randn(BLOCK, generator=chance)}
    for trained in (up, far, more):
        weights = State({name.replace("sum", "weight"): torch.tensor(1) for name in trained})
        source, manifest = write(trained | weights)
        together = Sent(sent | {"sum.new": torch.ones(4)})
        for _ in range(2):
            assert measure_change(source, manifest, (), dict(together)) == measure_change(
                source, manifest, (), together
            )
            assert check_update(source, manifest, (), Terms(sent=dict(together))) == check_update(
                source, manifest, (), Terms(sent=together)
            )


def test_a_change_whose_square_overflows() -> None:
    """It is large, and a number."""
    source, manifest = write(State({"sum.w": torch.tensor([3e38]), "weight.w": torch.tensor(1)}))
    assert 6e38 == pytest.approx(measure_change(source, manifest, (), {"sum.w": torch.tensor([-3e38])}))
