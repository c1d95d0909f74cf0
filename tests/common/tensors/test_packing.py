"""Numbers as bytes in each form, worked by hand; and blocks that nobody would write."""

from __future__ import annotations

import struct

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.spec.encoded_form import Form, read_form
from pfl_common.tensors.packing import pack, unpack

BF16, INT8 = Form("bf16"), Form("int8")
HALF = Form("topk", share=0.5)
FORMS = ("bf16-change", "int8-change", "topk-change/0.05", "topk-change/0.5")


def raw(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def int8(scale: float, *steps: int) -> bytes:
    return struct.pack(f"<f{len(steps)}b", scale, *steps)


def topk(places: list[int], values: bytes = bytes(6)) -> bytes:
    return struct.pack("<3h", *places) + values


def test_bf16_by_hand() -> None:
    """The upper half of a float32: 1 + 1/256 lies between two, and goes to the even one."""
    numbers = torch.tensor([1.0, 1 + 1 / 256, 1 + 3 / 256, -2.5])
    packed = pack(BF16, numbers)
    assert bytes.fromhex("803f 803f 823f 20c0") == packed.numpy().tobytes()
    assert [1.0, 1.0, 1 + 4 / 256, -2.5] == unpack(BF16, packed, 4).tolist()


def test_int8_by_hand() -> None:
    """The largest magnitude is 127 steps; a number half way between two steps goes to the even one."""
    steps = torch.tensor([4.0, 8.0, 10.0, -12.0, 254.0])
    assert int8(2.0, 2, 4, 5, -6, 127) == pack(INT8, steps).numpy().tobytes()
    assert steps.tolist() == unpack(INT8, pack(INT8, steps), 5).tolist()
    ties = torch.tensor([1.0, 3.0, -1.0, 254.0])
    assert int8(2.0, 0, 2, 0, 127) == pack(INT8, ties).numpy().tobytes()


def test_int8_blocks_have_scales_of_their_own() -> None:
    """256 numbers of one size do not coarsen the next."""
    numbers = torch.cat([torch.full((256,), 127.0), torch.tensor([1.27, 0.01])])
    packed = pack(INT8, numbers)
    assert 260 + 4 + 2 == len(packed)
    assert [127, 1] == packed[264:].view(torch.int8).tolist()
    assert [1.0] * 256 == packed[:260][4:].view(torch.int8).float().div(127).tolist()


def test_int8_by_chance_is_right_in_the_mean() -> None:
    """Half a step up or down, never further; the same chance gives the same bytes."""
    numbers = torch.cat([torch.full((255,), 0.25), torch.tensor([127.0])]).repeat(64)
    packed = pack(INT8, numbers, torch.Generator().manual_seed(3))
    found = unpack(INT8, packed, len(numbers))
    assert {0.0, 1.0, 127.0} == set(found.tolist())
    assert 0.25 == pytest.approx(found[numbers == 0.25].mean().item(), abs=0.02)
    assert torch.equal(packed, pack(INT8, numbers, torch.Generator().manual_seed(3)))
    assert not torch.equal(packed, pack(INT8, numbers, torch.Generator().manual_seed(4)))


def test_topk_by_hand() -> None:
    """The three largest of five by magnitude, in the order of their places; of equal ones the first."""
    packed = pack(HALF, torch.tensor([1.0, -4.0, 2.0, 1.0, 0.5]))
    assert struct.pack("<3H", 0, 1, 2) + bytes.fromhex("803f 80c0 0040") == packed.numpy().tobytes()
    assert [1.0, -4.0, 2.0, 0.0, 0.0] == unpack(HALF, packed, 5).tolist()


def test_nothing_changed() -> None:
    """Zeros are zeros in every form, and a number too small for a scale is one."""
    for text in FORMS:
        form = read_form(text)
        assert form is not None
        for numbers in (torch.zeros(5000), torch.full((3,), 1e-45)):
            assert [0.0] == unpack(form, pack(form, numbers), len(numbers)).unique().tolist()


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("count", [1, 255, 256, 4095, 4096, 4097, 9000])
def test_blocks_of_every_length(text: str, count: int) -> None:
    """As many bytes as the form says; what comes back is as near as the form can be, and packs to the same bytes."""
    form = read_form(text)
    assert form is not None
    numbers = torch.randn(count, generator=torch.Generator().manual_seed(count))
    packed = pack(form, numbers)
    found = unpack(form, packed, count)
    assert (form.size(count), count) == (len(packed), len(found))
    assert torch.equal(packed, pack(form, numbers.clone()))
    crossed = found != 0 if form.kind == "topk" else torch.ones(count, dtype=torch.bool)
    most = {"bf16": 0.02, "int8": 0.02, "topk": 0.02}[form.kind]
    assert most > (found - numbers)[crossed].abs().max().item()


HOSTILE = {
    "no number for a scale": (INT8, int8(float("nan"), 0, 0), 2),
    "infinity for a scale": (INT8, int8(float("inf"), 0, 0), 2),
    "a negative scale": (INT8, int8(-1.0, 1, 1), 2),
    "a number without a counterpart": (INT8, int8(1.0, -128, 1), 2),
    "a place behind the block": (HALF, topk([0, 1, 5]), 5),
    "a place before it": (HALF, topk([-1, 0, 1]), 5),
    "a place twice": (HALF, topk([0, 1, 1]), 5),
    "places in disorder": (HALF, topk([1, 0, 2]), 5),
}


@pytest.mark.parametrize("form, content, count", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_block(form: Form, content: bytes, count: int) -> None:
    """Refused in every block, the first as the last."""
    with pytest.raises(Refused) as refused:
        unpack(form, raw(content), count)
    assert "encoding" == refused.value.code
    honest = pack(form, torch.ones(form.block))
    with pytest.raises(Refused):
        unpack(form, torch.cat([honest, raw(content)]), form.block + count)
