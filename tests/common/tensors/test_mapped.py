"""Large tensors lie in a file or in huge pages, and nobody who uses them can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pfl_common.tensors import mapped
from pfl_common.tensors.state import State

torch.set_num_threads(1)

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 4), (300, 7001), (3 << 20,)], ids=str)
def test_zeros_are_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Of the shape and type asked for, writable, whether or not huge pages are used."""
    tensor = mapped.zeros(shape, dtype)
    assert (shape, dtype, True) == (tuple(tensor.shape), tensor.dtype, tensor.is_contiguous())
    assert not tensor.any()
    tensor += torch.ones((), dtype=dtype)
    assert tensor.all()


@pytest.mark.parametrize("large", [0, 1 << 30], ids=["file", "memory"])
def test_what_is_put_comes_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, large: int) -> None:
    """In any order of blocks, converted to the tensor's own type; of different types beside each other."""
    monkeypatch.setattr(mapped, "LARGE", large)
    like = {
        "b": torch.empty(5, dtype=torch.uint8),
        "f": torch.empty(2, 3),
        "s": torch.empty(()),
        "e": torch.empty(0),
    }
    with mapped.inside(tmp_path), mapped.draft(like) as draft:
        draft.put("f", 4, torch.tensor([4.0, 5.0], dtype=torch.float64))
        draft.put("f", 0, torch.tensor([0.5, 1.0, 2.0, 3.0]))
        draft.put("b", 0, torch.arange(5, dtype=torch.uint8))
        draft.put("s", 0, torch.tensor([0.1], dtype=torch.float64))
        tensors = draft.tensors()
    assert [[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]] == tensors["f"].tolist()
    assert [0, 1, 2, 3, 4] == tensors["b"].tolist()
    assert torch.tensor(0.1) == tensors["s"]
    assert {n: (t.dtype, t.shape) for n, t in like.items()} == {
        n: (t.dtype, t.shape) for n, t in tensors.items()
    }
    tensors["f"].mul_(2)
    assert 10.0 == float(tensors["f"][1, 2])


def test_a_small_state_is_left_where_it_is() -> None:
    """Only what is large is worth a file."""
    state = State({"w": torch.ones(3)})
    assert state is mapped.put_away(state)


def test_a_large_state_is_put_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All kinds of numbers come back as they were, views with gaps and kept updates too."""
    monkeypatch.setattr(mapped, "LARGE", 0)
    gaps, count = torch.arange(6.0).reshape(2, 3).T, torch.tensor([(1 << 62) + 1, -1])
    state = State({"gaps": gaps, "count": count, "mask": torch.tensor([True, False])}, kept={"a": object()})
    with mapped.inside(tmp_path):
        away = mapped.put_away(state)
    assert [] == list(tmp_path.iterdir()), "the file has no name"
    assert state.kept == away.kept
    assert all(torch.equal(value, away[name]) for name, value in state.items())
    assert {n: v.dtype for n, v in state.items()} == {n: v.dtype for n, v in away.items()}


def test_the_folder_is_that_of_the_innermost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that is not there shows where files would be made."""
    monkeypatch.setattr(mapped, "LARGE", 0)
    like = {"w": torch.ones(1)}
    with mapped.inside(tmp_path / "outer"), mapped.inside(tmp_path):
        with (
            mapped.inside(tmp_path / "gone"),
            pytest.raises(FileNotFoundError, match="gone"),
            mapped.draft(like),
        ):
            pass
        with mapped.draft(like) as draft:
            draft.put("w", 0, torch.ones(1))
            assert [1.0] == draft.tensors()["w"].tolist()


MEASURE = """
import re, sys
from pathlib import Path
import torch
from pfl_common.tensors import mapped
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Weighted
torch.set_num_threads(1)
def anonymous():
    return int(re.search(r"^RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text(), re.M)[1])
numbers = 24 << 20
with mapped.inside(Path(sys.argv[1])):
    first = mapped.put_away(State({"a": torch.ones(numbers // 2), "b": torch.ones(2, numbers // 4)}))
    total = Sum()
    total.add({name: Weighted(value, torch.tensor(3)) for name, value in first.items()})
    before, peak, put = anonymous(), 0, mapped._InFile.put
    def watched(*what):
        global peak
        put(*what)
        peak = max(peak, anonymous())
    mapped._InFile.put = watched
    state = total.mean(otherwise=first)
    assert all(value.aminmax() == (1, 1) for value in state.values())
    print(peak - before, anonymous() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux counts memory this way")
def test_a_large_mean_takes_no_memory(tmp_path: Path) -> None:
    """A model of 96 MB is averaged and looked at in a few megabytes of memory of one's own."""
    answer = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=tmp_path,
    )
    during, after = (int(word) for word in answer.stdout.split())
    assert 10_000 > during, "kilobytes"
    assert 10_000 > after, "kilobytes"


def test_a_draft_is_written_over_one_that_nobody_looks_into(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its pages are warm; as long as one tensor lies there it stays as it is."""
    monkeypatch.setattr(mapped, "LARGE", 0)
    made = 0
    open_file = mapped.tempfile.TemporaryFile

    def count(**named: object) -> object:
        nonlocal made
        made += 1
        return open_file(**named)

    monkeypatch.setattr(mapped.tempfile, "TemporaryFile", count)

    def put_away(number: float, length: int) -> State:
        with mapped.inside(tmp_path):
            return mapped.put_away(State({"w": torch.full((length,), number), "v": torch.tensor(number)}))

    first, second = put_away(1.0, 5), put_away(2.0, 7)
    kept = first["w"][1:2]
    del first
    third = put_away(3.0, 3)
    assert 3 == made
    del kept
    fourth = put_away(4.0, 4)
    assert 3 == made
    for state, number, length in ((second, 2.0, 7), (third, 3.0, 3), (fourth, 4.0, 4)):
        assert ([number] * length, number) == (state["w"].tolist(), state["v"].item())
