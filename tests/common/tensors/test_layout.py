"""A parcel read in parts: each part is what lies there, and what is not there is an error and not silence."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry
from pfl_common.tensors import layout
from pfl_common.tensors.layout import Window, lay_out, open_file
from tests.common.support.held import Held

MANIFEST = (
    Entry("extra.v", "uint8", (3,), "extra"),
    Entry("sum.w", "float32", (2, 5)),
    Entry("weight.w", "int64", ()),
)
CONTENT = bytes(range(3)) + torch.arange(10.0).numpy().tobytes() + (7).to_bytes(8, "little")


def test_tensors_lie_one_after_the_other() -> None:
    """Without gaps, in the manifest's order; an absent group takes no place."""
    assert [0, 3, 43] == [place.offset for place in lay_out(MANIFEST, ["extra"]).values()]
    assert {"sum.w": 0, "weight.w": 40} == {n: place.offset for n, place in lay_out(MANIFEST, []).items()}
    assert [48, 51] == [layout.size_of(MANIFEST, groups) for groups in ([], ["extra"])]


def test_a_group_nobody_pinned_is_refused() -> None:
    """A header cannot invent tensors."""
    with pytest.raises(Refused, match="does not have"):
        lay_out(MANIFEST, ["extra", "other"])
    with pytest.raises(Refused, match="does not have"):
        layout.size_of(MANIFEST, ["extra", "other"])


def test_words_of_a_peer_are_not_kept() -> None:
    """What is worked out from a manifest is remembered, but not by names of somebody's choice."""
    size = 1 << 20
    tracemalloc.start()
    try:
        for number in range(32):
            for ask in (lay_out, layout.size_of):
                with pytest.raises(Refused) as refused:
                    ask(MANIFEST, ["extra", f"{number:0{size}d}"])
                assert len(str(refused.value)) < 400
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4 * size


@pytest.mark.parametrize("held", [True, False])
def test_any_part_can_be_read(tmp_path: Path, held: bool) -> None:
    """From memory and from a file, in any order, whatever the place."""
    file = tmp_path / "parcel"
    file.write_bytes(CONTENT)
    with open_file(file) as filed:
        source = Held(CONTENT) if held else filed
        assert len(CONTENT) == source.size
        for start, stop in ((40, 51), (0, 51), (3, 3), (7, 20)):
            target = bytearray(stop - start)
            source.read_into(start, memoryview(target))
            assert CONTENT[start:stop] == target


def test_a_file_that_became_short_is_an_error(tmp_path: Path) -> None:
    """Nobody gets zeros for what is gone, and the process lives on."""
    file = tmp_path / "parcel"
    file.write_bytes(CONTENT)
    with open_file(file) as source:
        with file.open("r+b") as writer:
            writer.truncate(45)
        with pytest.raises(EOFError, match="ends at byte 45: 6 more"):
            source.read_into(40, memoryview(bytearray(11)))


@pytest.mark.parametrize("block", [1, 3, 4, 10, 1 << 18])
def test_blocks_together_are_the_tensor(block: int) -> None:
    """Each number once, in order, also where a tensor begins at an odd place and the last block is not full."""
    places, window = lay_out(MANIFEST, ["extra"]), Window(Held(CONTENT), block)
    seen = [part.clone() for _, part in window.blocks(places["sum.w"])]
    assert [*range(10)] == torch.cat(seen).tolist()
    assert {min(block, 10)} >= {len(part) for part in seen[:-1]}
    assert [7] == window.take(places["weight.w"], 0, 1).tolist()


def test_a_whole_tensor_has_memory_of_its_own() -> None:
    """It stays when the next one is read."""
    places, source = lay_out(MANIFEST, ["extra"]), Held(CONTENT)
    one, other = (layout.read(source, places[name]) for name in ("sum.w", "extra.v"))
    assert torch.equal(torch.arange(10.0).reshape(2, 5), one)
    assert [0, 1, 2] == other.tolist()
    assert 7 == int(layout.read(source, places["weight.w"]))
