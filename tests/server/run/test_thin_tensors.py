"""Thin tensors have the shape and type of whole ones, next to no memory, and are good enough to compute with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pfl_common.learning.arithmetic import Arithmetic
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Up, Weighted
from pfl_server.run.thin_tensors import (
    SMALL,
    SparingArithmetic,
    copy_whole,
    thin,
    thin_out,
    thin_state,
    thin_update,
)

WIDE = (300, 20, 3)
"""More numbers than are held as they are."""


def held(value: Tensor) -> int:
    """Numbers in a tensor's memory."""
    return value.untyped_storage().nbytes() // value.itemsize


def test_a_thin_tensor_holds_its_first_numbers() -> None:
    """Its shape and type stay; rows differ, and the first number is the first."""
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        whole = torch.arange(300 * 60).remainder(251).reshape(WIDE).to(dtype)
        made = thin(whole)
        assert (whole.shape, whole.dtype) == (made.shape, made.dtype)
        assert 300 + 20 + 3 - 2 == held(made)
        assert torch.equal(whole[0, 0, 0], made[0, 0, 0])
        assert not torch.equal(made[0], made[1])


def test_a_small_tensor_stays_as_it_is() -> None:
    """There is nothing to save in it, and a single number has no rows."""
    for shape in ((), (SMALL,), (0, 5)):
        whole = torch.rand(shape)
        assert thin(whole) is whole


def test_a_module_is_thinned_and_made_whole_again() -> None:
    """All its large tensors; the copy can be trained and shares nothing."""
    module = nn.Sequential(nn.Linear(200, 300), nn.BatchNorm1d(300))
    thin_out(module)
    assert 200 + 300 - 1 == held(module[0].weight)
    twin = copy_whole(module)
    assert [200 * 300] == [held(twin[0].weight)]
    assert torch.equal(module[0].weight, twin[0].weight)
    with torch.no_grad():
        twin[0].weight.add_(1)
    assert not torch.equal(module[0].weight, twin[0].weight)


def test_states_and_updates_keep_their_names() -> None:
    """What is kept by reference too; weights of each element are thinned as values are."""
    value, kept = torch.rand(WIDE), {"a": object()}
    state = thin_state(State({"w": value}, kept=kept))
    assert (["w"], kept) == (list(state), state.kept)
    up = thin_update(Up({"w": Weighted(value, torch.ones(WIDE))}, State({"shown": value})))
    assert {321} == {held(up.summed["w"].value), held(up.summed["w"].weight), held(up.shown["shown"])}


def test_gradients_are_made_and_let_go() -> None:
    """The loss is the usual one, a small gradient too; of a large one its first numbers are left, and no hook."""
    layer, x, y = nn.Linear(200, 300), torch.rand(4, 200), torch.rand(4, 300)
    parameters = list(layer.parameters())

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return (layer(x) - y).square().mean()

    usual, slopes = Arithmetic().gradients(loss, parameters, x, y)
    sparing, (weight, bias) = SparingArithmetic().gradients(loss, parameters, x, y)
    assert usual == sparing
    assert torch.equal(slopes[1], bias)
    assert (slopes[0].shape, 499) == (weight.shape, held(weight))
    assert torch.equal(slopes[0][0, 0], weight[0, 0])
    assert not parameters[0]._backward_hooks
