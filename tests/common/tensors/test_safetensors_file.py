"""The files we write by hand are read by the library that defines the format."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load

from pfl_common.tensors import safetensors_file

torch.set_num_threads(1)


def draw(dtype: torch.dtype, shape: list[int], seed: int) -> torch.Tensor:
    """Some numbers of any type."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, shape, generator=chance).to(dtype)


tensors = st.dictionaries(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=5).filter("__metadata__".__ne__),
    st.tuples(
        st.sampled_from(sorted(safetensors_file.NAMES, key=str)),
        st.lists(st.integers(0, 4), max_size=3),
        st.integers(0, 99),
    ),
    max_size=6,
)


@given(drawn=tensors, order=st.randoms(use_true_random=False))
def test_the_library_reads_what_was_written(drawn: dict, order: object) -> None:
    """Any names, types and shapes; the order in which tensors are given does not show."""
    state = {name: draw(*words) for name, words in drawn.items()}
    shuffled = list(state.items())
    order.shuffle(shuffled)
    one, other = io.BytesIO(), io.BytesIO()
    safetensors_file.write(state, one)
    safetensors_file.write(dict(shuffled), other)
    assert one.getvalue() == other.getvalue()
    back = load(one.getvalue())
    assert state.keys() == back.keys()
    for name, value in state.items():
        assert (value.dtype, value.shape) == (back[name].dtype, back[name].shape)
        assert torch.equal(value, back[name])


def test_more_than_a_piece(tmp_path: Path) -> None:
    """A tensor longer than what is written at a time, crosswise in memory."""
    long = torch.arange(700_002.0).reshape(2, -1).T
    with (tmp_path / "file").open("wb") as raw:
        out = safetensors_file.Hashed(raw)
        safetensors_file.write({"long": long}, out)
    content = (tmp_path / "file").read_bytes()
    assert hashlib.sha256(content).hexdigest() == out.digest
    assert torch.equal(long, load(content)["long"])


def test_what_is_said_of_them(tmp_path: Path) -> None:
    """Words beside the tensors, in one order however they are given."""
    files = [tmp_path / name for name in ("one", "other")]
    for file, about in zip(files, ({"a": "1", "b": "ü"}, {"b": "ü", "a": "1"}), strict=True):
        with file.open("wb") as out:
            safetensors_file.write({"w": torch.ones(1)}, out, about)
    assert files[0].read_bytes() == files[1].read_bytes()
    with safe_open(files[0], "pt") as file:
        assert {"a": "1", "b": "ü"} == file.metadata()


def test_a_type_the_format_lacks() -> None:
    """It is an error that names the tensor, before anything is written."""
    out = io.BytesIO()
    with pytest.raises(TypeError, match=r"'odd' is torch\.complex64"):
        safetensors_file.write({"odd": torch.ones(1, dtype=torch.complex64)}, out)
    assert b"" == out.getvalue()


@given(drawn=tensors)
def test_read_where_it_lies(tmp_path_factory: pytest.TempPathFactory, drawn: dict) -> None:
    """As the library reads it; what is written to a tensor stays in memory."""
    state = {name: draw(*words) for name, words in drawn.items()}
    file = tmp_path_factory.mktemp("read") / "file"
    with file.open("wb") as out:
        safetensors_file.write(state, out, {"about": "it"})
    content = file.read_bytes()
    back, _ = safetensors_file.read_mapped(file)
    assert state.keys() == back.keys()
    for name, value in state.items():
        assert (value.dtype, value.shape) == (back[name].dtype, back[name].shape)
        assert torch.equal(value, back[name])
        back[name].zero_()
    assert content == file.read_bytes()
