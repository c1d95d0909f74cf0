"""What the doctor takes a path for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_deploy.doctor.recognition import recognise


@pytest.mark.parametrize(
    ("inside", "thing"),
    [
        ("federation/", "coordinator's state"),
        ("runs/r/", "coordinator's state"),
        ("keys/", "site's folder"),
        ("keys/ runs/", "site's folder"),
        ("abcdef/hospital_a/keys/", "sites' state"),
        ("train/ill/", "data folder"),
        ("train.npz", "data folder"),
        ("", "data folder"),
    ],
)
def test_a_folder_by_what_lies_in_it(tmp_path: Path, inside: str, thing: str) -> None:
    """An empty one is taken for data, which says that it is empty."""
    for name in inside.split():
        place = tmp_path / name
        place.mkdir(parents=True) if name.endswith("/") else place.touch()
    assert thing == recognise(tmp_path)


def test_files_and_nothing(tmp_path: Path) -> None:
    """A file of data is no invitation, whatever the others are called."""
    for name, thing in (("a.join", "invitation"), ("invitation", "invitation"), ("t.npz", "data folder")):
        (tmp_path / name).touch()
        assert thing == recognise(tmp_path / name)
    assert "nothing" == recognise(tmp_path / "nowhere")
