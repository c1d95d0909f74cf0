"""A damaged checkpoint is made again, to the same bytes, or said to be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.errors import StateError
from tests.server.support.federation import build_spec
from tests.server.support.lives import Script, play, stop_after, trained


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("lost", [{}, {("b", 1, 1): "left", ("b", 2, 1): "left", ("b", 3, 1): "left"}])
def test_a_damaged_newest_checkpoint_is_made_again(tmp_path: Path, number: int, lost: Script) -> None:
    """From the one before it (or the first state) and the counted updates, to the same bytes."""
    whole, broken = build_spec(rounds=4), build_spec(rounds=4)
    play(tmp_path / "whole", whole, lost)
    stop_after(tmp_path / "broken", broken, number, lost)
    file = tmp_path / "broken" / "checkpoints" / f"round-{number:06d}.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 64
    file.write_bytes(raw)
    _, fleet, _ = play(tmp_path / "broken", broken, lost)
    assert min(n for _, n, _ in trained(fleet)) == number + 1
    assert newest(tmp_path / "whole") == newest(tmp_path / "broken")


def test_a_checkpoint_that_cannot_be_made_again(tmp_path: Path) -> None:
    """Its updates are damaged too: an error that says what to do, not a wrong model."""
    spec = build_spec(rounds=4)
    stop_after(tmp_path, spec, 2, {})
    (tmp_path / "checkpoints" / "round-000002.safetensors").write_bytes(b"")
    (tmp_path / "spool" / "000002-1-b.raw").write_bytes(b"\0" * 100)
    with pytest.raises(StateError, match="--new-run"):
        play(tmp_path, spec)


def newest(folder: Path) -> bytes:
    return max((folder / "checkpoints").glob("*.safetensors")).read_bytes()
