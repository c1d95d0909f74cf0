"""The daemon's own look at an update's names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from pfl_client.run_folder.outgoing_names import check_names, read_names
from pfl_client.trainer_process.task_errors import PersonalTensor
from pfl_common.spec.manifest import Entry

KNOWN = ("encoder.w", "head.w", "head.b")


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A generation that keeps the head."""
    file = tmp_path / "next.safetensors"
    file.write_bytes(save({name: np.zeros(3, np.float32) for name in ("head.w", "head.b")}, {"pfl": "x"}))
    return file


def look(vault: Path, *names: str, told: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> None:
    """Look at an update with these names; `g:` before one puts it into the group g."""
    pairs = [name.rpartition(":")[::2] for name in names]
    manifest = tuple(Entry(name, "float32", (3,), group) for group, name in pairs)
    check_names(manifest, groups, kept=read_names(vault), told=told, known=KNOWN)


def test_what_is_shared_passes(vault: Path) -> None:
    """And what the method shows by its design, where it is shown."""
    look(vault, "sum.encoder.w", "weight.encoder.w", "show.samples")
    look(vault, "show.model.head.w", told=("head.w",))
    look(vault, "g:sum.head.w")


@pytest.mark.parametrize(
    "name", ["sum.head.w", "weight.head.b", "show.head.w", "show.model.head.w", "g:sum.head.w"]
)
def test_what_lies_in_the_vault_is_not_sealed(vault: Path, name: str) -> None:
    """Whatever branch or group it is put in."""
    with pytest.raises(PersonalTensor, match=r"head\..*vault"):
        look(vault, "sum.encoder.w", name, groups=("g",))


def test_what_is_shown_by_design_is_not_summed(vault: Path) -> None:
    """A trainer that calls everything shown opens no other branch."""
    with pytest.raises(PersonalTensor):
        look(vault, "sum.head.w", told=KNOWN)


@pytest.mark.parametrize("content", [b"", b"state after 1", bytes(100), b"\x08" + bytes(7) + b'["a"]   '])
def test_a_file_without_tensors_has_no_names(tmp_path: Path, content: bytes) -> None:
    """It is refused where it is loaded."""
    (tmp_path / "x").write_bytes(content)
    assert frozenset() == read_names(tmp_path / "x")
