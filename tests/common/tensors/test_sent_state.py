"""What sites hold where downloads cross as changes: the numbers by hand, and the same bits in both ways."""

from __future__ import annotations

import hashlib
import io
import struct

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry, Manifest
from pfl_common.tensors import codec, mapped
from pfl_common.tensors.encoded import Changes
from pfl_common.tensors.packing import CHUNK
from pfl_common.tensors.sent_state import digest_of, follow
from pfl_common.tensors.state import State

FORMS = ("int8-change", "topk-change/0.05")
LONG = CHUNK + 5000


def pin(form: str) -> Manifest:
    """A tensor longer than a chunk, one that is short, and one that crosses as it is."""
    return (Entry("b", "int64", (2,)), Entry("v", form, (LONG,)), Entry("w", form, (300, 3)))


def draw(seed: int) -> State:
    """Numbers of all of them."""
    chance = torch.Generator().manual_seed(seed)
    shapes = {"v": (LONG,), "w": (300, 3)}
    return State({n: torch.randn(s, generator=chance) for n, s in shapes.items()} | {"b": torch.arange(2)})


def hold(state: State) -> State:
    """What of it crosses as changes."""
    return state.only(("v", "w"))


def test_int8_by_hand() -> None:
    """The largest change is 63.5, a step 0.5: 1.25 is two and a half steps and goes to the even one, 2. The quarter
    that is left is the largest change of the next round, and crosses then.
    """
    manifest = (Entry("w", "int8-change", (3,)),)
    before, state = State({"w": torch.tensor([1.0, 2.0, 3.0])}), State({"w": torch.tensor([64.5, 0.75, 3.0])})
    first = follow(before, state, manifest)
    assert [64.5, 1.0, 3.0] == first["w"].tolist()
    second = follow(first, state, manifest)
    assert [64.5, pytest.approx(0.75, abs=1e-7), 3.0] == second["w"].tolist()


def test_topk_by_hand() -> None:
    """Of 40 changes two cross in a round: first 5 and -4, then 3 and 1, then nothing is left."""
    manifest, changes = (Entry("w", "topk-change/0.05", (40,)),), torch.zeros(40)
    changes[[3, 7, 20, 39]] = torch.tensor([3.0, 5.0, 1.0, -4.0])
    held, found = State({"w": torch.full((40,), 10.0)}), []
    state = State({"w": changes + 10})
    for _ in range(3):
        held = follow(held, state, manifest)
        found.append([(place, held["w"][place].item()) for place in (3, 7, 20, 39)])
    assert [(3, 10.0), (7, 15.0), (20, 10.0), (39, 6.0)] == found[0]
    assert [(3, 13.0), (7, 15.0), (20, 11.0), (39, 6.0)] == found[1] == found[2]


@pytest.mark.parametrize("form", FORMS)
def test_the_change_leads_where_the_whole_does(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that adds what crosses comes to the coordinator's bits, wherever those lie; a hash says so."""
    manifest, before, state = pin(form), hold(draw(1)), draw(2)
    held, out = follow(before, state, manifest), io.BytesIO()
    codec.encode(state, manifest, out, changes := Changes(before, State(), keeps_rest=False))
    found = codec.decode(bytearray(out.getvalue()), manifest, (), before)
    assert all(torch.equal(held[name], found[name]) for name in ("v", "w"))
    assert torch.equal(state["b"], found["b"])
    assert {} == changes.rest
    assert digest_of(held, manifest, "blake3") == digest_of(found, manifest, "blake3")
    monkeypatch.setattr(mapped, "LARGE", 0)
    filed = follow(before, state, manifest)
    assert digest_of(held, manifest, "blake3") == digest_of(filed, manifest, "blake3")


@pytest.mark.parametrize("form", FORMS)
def test_what_did_not_cross_crosses_later(form: str) -> None:
    """A state that stands still is reached."""
    manifest, held, state = pin(form), hold(draw(1)), draw(2)
    far = (state["w"] - held["w"]).abs().max().item()
    for _ in range(24):
        held = follow(held, state, manifest)
    assert 0.01 * far > (state["w"] - held["w"]).abs().max().item()


def test_the_hash_by_hand() -> None:
    """The numbers as they lie, in the order of the manifest; what crosses as it is does not count."""
    manifest = (Entry("b", "int8-change", (2,)), Entry("a", "int8-change", (1,)), Entry("c", "int64", ()))
    held = State({"a": torch.tensor([1.0]), "b": torch.tensor([2.0, 3.0]), "c": torch.tensor(4)})
    expected = hashlib.sha256(struct.pack("<3f", 2.0, 3.0, 1.0)).hexdigest()
    assert expected == digest_of(held, manifest, "sha256")
    assert expected != digest_of({**held, "a": torch.tensor([-1.0])}, manifest, "sha256")


def test_a_change_that_nobody_could_have_written() -> None:
    """It is refused by the name of its tensor, before anything is added."""
    manifest = (Entry("w", "int8-change", (2,)),)
    content = bytearray(struct.pack("<fbb", float("nan"), 1, 2))
    with pytest.raises(Refused, match=r"'w': an int8 block has a scale"):
        codec.decode(content, manifest, (), State({"w": torch.zeros(2)}))
