"""Sizes of parcels from types and shapes alone, and the fingerprint of a manifest."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from pfl_common.errors import UserError
from pfl_common.spec.manifest import WIDTHS, Entry, full_size, manifest_hash
from pfl_common.tensors import layout


@pytest.mark.parametrize("dtype", layout.DTYPES)
def test_a_number_is_as_wide_as_in_torch(dtype: str) -> None:
    """One table for programs with torch and without; both count the same bytes."""
    kind = layout.DTYPES[dtype]
    assert f"torch.{dtype}" == str(kind)
    assert kind.itemsize == WIDTHS[dtype] == Entry("x", dtype, ()).nbytes
    assert torch.zeros(2, 3, dtype=kind).nbytes == Entry("x", dtype, (2, 3)).nbytes


def test_bytes_of_a_parcel() -> None:
    """By hand: 2·3 floats of 4 bytes, one whole number of 8, five bits of a byte each; optional ones count too."""
    manifest = (Entry("a", "float32", (2, 3)), Entry("b", "int64", ()), Entry("c", "bool", (5,), "extra"))
    assert [24, 8, 5] == [entry.nbytes for entry in manifest]
    assert 24 + 8 + 5 == full_size(manifest) == layout.size_of(manifest, ["extra"])
    assert 0 == full_size(()) == Entry("a", "float32", (0, 3)).nbytes


def test_an_unknown_type_is_said_in_words() -> None:
    """A specification of another release may have one: nothing is guessed from its digits."""
    with pytest.raises(UserError, match=r"tensor a has numbers of type 'int16'[\s\S]*did you mean"):
        full_size((Entry("a", "int16", (2,)),))


def test_every_field_is_in_the_fingerprint() -> None:
    """Name, type, shape and group each; equal manifests have equal ones."""
    plain = Entry("a", "float32", (2, 3))
    others = (
        Entry("b", "float32", (2, 3)),
        Entry("a", "int32", (2, 3)),
        Entry("a", "float32", (3, 2)),
        Entry("a", "float32", (2, 3), "g"),
    )
    assert 5 == len({manifest_hash((entry,)) for entry in (plain, *others)})
    assert manifest_hash((plain,)) == manifest_hash((Entry("a", "float32", (2, 3)),))
    assert 32 == len(manifest_hash(()))


def test_sizes_need_no_torch() -> None:
    """The daemon asks for them before it has a trainer."""
    code = "import sys; import pfl_common.spec.manifest; sys.exit('torch' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
