"""An update's changes on their way: what is written, what is kept, and the parcel read as if it were plain."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry, Manifest, decode_manifest
from pfl_common.tensors import codec
from pfl_common.tensors.encoded import Changes, Decoded, open_plain
from pfl_common.tensors.packing import CHUNK
from pfl_common.tensors.state import State
from pfl_common.tensors.update_check import Terms, check_update

SIDE = 300
LONG = CHUNK + 5000
FORMS = ("bf16-change", "int8-change", "topk-change/0.05")
MOST = {"bf16-change": 0.03, "int8-change": 0.03, "topk-change/0.05": 5.0}


def manifest(form: str) -> Manifest:
    """An odd number of bytes before two encoded tensors, of which one is longer than a chunk."""
    return (
        Entry("show.mask", "bool", (3,)),
        Entry("sum.bias", "float32", (2,)),
        Entry("sum.v", form, (LONG,)),
        Entry("sum.w", form, (SIDE, 3)),
        Entry("weight.bias", "int64", ()),
        Entry("weight.v", "int64", ()),
        Entry("weight.w", "int64", ()),
    )


def draw(seed: int) -> State:
    """Numbers of all the tensors."""
    chance = torch.Generator().manual_seed(seed)
    numbers = {"sum.bias": (2,), "sum.v": (LONG,), "sum.w": (SIDE, 3)}
    values = {name: torch.randn(shape, generator=chance) for name, shape in numbers.items()}
    weights = {name.replace("sum", "weight"): torch.tensor(7) for name in numbers}
    return State({**values, **weights, "show.mask": torch.tensor([True, False, True])})


class Source:
    """A parcel in memory, which notes what is read of it."""

    def __init__(self, content: bytes) -> None:
        self.content, self.size, self.read = content, len(content), list[tuple[int, int]]()

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill the target."""
        self.read.append((offset, offset + len(target)))
        target[:] = self.content[offset : offset + len(target)]


def write(state: State, form: str, sent: State, rest: Mapping[str, torch.Tensor] = {}) -> tuple[bytes, State]:
    """A parcel, and what did not cross."""
    out, changes = io.BytesIO(), Changes(sent, State(rest))
    codec.encode(state, manifest(form), out, changes)
    return out.getvalue(), State(changes.rest)


def read(content: bytes, form: str, base: State) -> State:
    """The parcel as it is decoded."""
    source = open_plain(Source(content), manifest(form), (), base)
    plain = bytearray(source.size)
    source.read_into(0, memoryview(plain))
    return codec.decode(plain, decode_manifest(manifest(form)), ())


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_is_what_was_sent_and_the_change(form: str) -> None:
    """The change is added to the base of the coordinator, which need not be what the site was sent; the rest is what
    is missing, to the bit; what crosses as it is does.
    """
    sent, base, trained = draw(1), draw(2), draw(3)
    content, rest = write(trained, form, sent)
    found = read(content, form, base)
    assert torch.equal(trained["sum.bias"], found["sum.bias"])
    assert torch.equal(trained["show.mask"], found["show.mask"])
    for name in ("sum.v", "sum.w"):
        change = trained[name] - sent[name]
        got = found[name] - base[name]
        assert MOST[form] > (got - change).abs().max().item()
        if form == "bf16-change":
            assert not rest
        else:
            assert torch.allclose(change, got + rest[name], atol=1e-5)


@pytest.mark.parametrize("form", FORMS[1:])
def test_what_did_not_cross_crosses_later(form: str) -> None:
    """A site that learns nothing more sends its rest, a part of it in each round, until all has crossed."""
    zero = State({name: torch.zeros_like(value) for name, value in draw(1).items()})
    change, total, rest = draw(3), torch.zeros(SIDE, 3), State()
    for number in range(20):
        trained = change if not number else zero | {"show.mask": change["show.mask"]}
        content, rest = write(trained, form, zero, rest)
        total += read(content, form, zero)["sum.w"]
    assert torch.allclose(change["sum.w"], total, atol=0.01)
    assert 0.01 > rest["sum.w"].abs().max().item()


def test_chance_is_asked_for_by_name() -> None:
    """Each tensor has its own, and other chance gives other bytes."""
    sent, trained, asked = draw(1), draw(2), list[str]()

    def chance(seed: int, name: str) -> torch.Generator:
        asked.append(name)
        return torch.Generator().manual_seed(seed)

    found = []
    for seed in (1, 1, 2):
        out = io.BytesIO()
        changes = Changes(sent, State(), lambda name, seed=seed: chance(seed, name))
        codec.encode(trained, manifest("int8-change"), out, changes)
        found.append(out.getvalue())
    assert ["sum.v", "sum.w"] == asked[:2]
    assert found[0] == found[1] != found[2]
    assert write(trained, "int8-change", sent)[0] not in found


@pytest.mark.parametrize("form", FORMS)
def test_any_part_can_be_read(form: str) -> None:
    """Over the ends of chunks and tensors, at any byte; and it gives what reading the whole gives."""
    sent, trained = draw(1), draw(2)
    content, _ = write(trained, form, sent)
    source = Decoded(Source(content), manifest(form), (), sent)
    whole = bytearray(source.size)
    source.read_into(0, memoryview(whole))
    for start, stop in (
        (0, 3),
        (1, 12),
        (11 + CHUNK * 4 - 6, 11 + CHUNK * 4 + 9),
        (len(whole) - 9, len(whole)),
    ):
        part = bytearray(stop - start)
        source.read_into(start, memoryview(part))
        assert whole[start:stop] == part


@pytest.mark.parametrize("form", FORMS)
def test_a_look_reads_each_byte_once_and_in_order(form: str) -> None:
    """A sealed parcel is verified as it is read: it has to be read whole, from its first byte to its last."""
    content, _ = write(draw(2), form, draw(1))
    source = Source(content)
    change = check_update(
        open_plain(source, manifest(form), (), draw(1)),
        decode_manifest(manifest(form)),
        (),
        Terms(sent=draw(1)),
    )
    ends = [0, *(end for _, end in source.read)]
    assert [start for start, _ in source.read] == ends[:-1]
    assert len(content) == ends[-1]
    assert change > 0


@pytest.mark.parametrize("cut", [-1, 1])
def test_another_length(cut: int) -> None:
    """A parcel is as long as its manifest says, to the byte."""
    content, _ = write(draw(2), "int8-change", draw(1))
    other = content[:cut] if cut < 0 else content + bytes(cut)
    with pytest.raises(Refused, match="the manifest says") as refused:
        read(other, "int8-change", draw(1))
    assert "size" == refused.value.code


def test_numbers_that_are_none_are_seen_where_they_are_decoded() -> None:
    """NaN in a bf16 change, and infinity, are the update's; in a scale they are refused with the tensor's name."""
    spoilt = bytearray(write(draw(2), "bf16-change", draw(1))[0])
    place = 3 + 8 + 2 * 70
    spoilt[place : place + 2] = bytes.fromhex("c07f")
    source = open_plain(Source(bytes(spoilt)), manifest("bf16-change"), (), draw(1))
    with pytest.raises(Refused, match=r"sum\.v") as refused:
        check_update(source, decode_manifest(manifest("bf16-change")), ())
    assert "not_finite" == refused.value.code
    spoilt = bytearray(write(draw(2), "int8-change", draw(1))[0])
    spoilt[11:15] = bytes.fromhex("0000c07f")
    with pytest.raises(Refused, match=r"'sum\.v': an int8 block has a scale"):
        read(bytes(spoilt), "int8-change", draw(1))


def test_a_plain_parcel_is_its_own_source() -> None:
    """Nothing stands between a run that encodes nothing and its bytes."""
    source = Source(b"")
    assert open_plain(source, (Entry("sum.w", "float32", (0,)),), (), State()) is source


def test_a_change_from_nothing() -> None:
    """What a change is a change of has to be said, when it is written and when it is read."""
    with pytest.raises(ValueError, match="it is not said from what"):
        codec.encode(draw(1), manifest("int8-change"), io.BytesIO())
    content, _ = write(draw(2), "int8-change", draw(1))
    with pytest.raises(ValueError, match="it is not said of what"):
        codec.decode(bytearray(content), manifest("int8-change"), ())


def test_values_down() -> None:
    """A download in bf16 has half the bytes; it decodes to the nearest such numbers, in memory of its own."""
    pinned = (Entry("a", "bool", (3,)), Entry("w", "bf16", (LONG,)))
    state = State({"a": torch.tensor([True, True, False]), "w": draw(1)["sum.v"]})
    out = io.BytesIO()
    codec.encode(state, pinned, out)
    found = codec.decode(bytearray(out.getvalue()), pinned, ())
    assert 3 + 2 * LONG == len(out.getvalue())
    assert torch.equal(state["w"].bfloat16().float(), found["w"])
    assert torch.equal(state["a"], found["a"])
