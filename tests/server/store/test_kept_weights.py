"""What a run took from weights stays in its folder, whole or not used."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pfl_common.errors import StateError
from pfl_common.spec.run import RunSpec, Weights
from pfl_server.store.kept_weights import NAME, digest_of, keep, read_kept
from tests.server.support.federation import build_spec

TAKEN = {"encoder.1.weight": torch.arange(6.0).reshape(3, 2), "encoder.1.bias": torch.ones(3)}


def pin() -> RunSpec:
    """A run that took them."""
    return replace(build_spec(), weights=Weights("mine.pth", "0" * 64, digest_of(TAKEN)))


def test_what_is_kept_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own types and shapes, after it was brought to the disk."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    keep(tmp_path, TAKEN)
    assert synced
    found = read_kept(tmp_path, pin())
    assert found is not None
    assert TAKEN.keys() == found.keys()
    assert all(torch.equal(value, found[name]) for name, value in TAKEN.items())


def test_a_run_without_weights_needs_none(tmp_path: Path) -> None:
    """All of its first model is drawn."""
    assert read_kept(tmp_path, build_spec()) is None


@pytest.mark.parametrize("harm", ["gone", "damaged", "another"])
def test_other_tensors_are_refused(harm: str, tmp_path: Path) -> None:
    """A run must not go on from another first model than it began with."""
    if harm != "gone":
        keep(tmp_path, TAKEN if harm == "damaged" else {"encoder.1.bias": torch.zeros(3)})
    if harm == "damaged":
        content = bytearray((tmp_path / NAME).read_bytes())
        content[-1] ^= 1
        (tmp_path / NAME).write_bytes(content)
    with pytest.raises(StateError, match=NAME) as refused:
        read_kept(tmp_path, pin())
    assert "mine.pth" in refused.value.expected
