"""The first model is fetched and opened once, whatever happens in between."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pfl_client.run_folder.downloads import Downloads
from pfl_client.run_folder.first_model import FirstModel
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.files import atomic
from pfl_common.files.recycler import Blanks
from pfl_common.spec.messages import Blob, Joined
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.support.scripted_site import pin

JOINED = Joined(pin().to_json(), Blob("d" * 64, 5))


@pytest.fixture
def downloads(tmp_path: Path) -> Downloads:
    """Those of a run that has just begun."""
    return Downloads(tmp_path, OpenEnvelopes(), Blanks(tmp_path / "blanks", most=0))


@pytest.fixture
def model(tmp_path: Path, downloads: Downloads) -> FirstModel:
    """That of the same run."""
    return FirstModel(tmp_path, pin(), downloads)


def settle(model: FirstModel, downloads: Downloads) -> None:
    """Fetch it and open it."""
    letter = model.accept(JOINED)
    downloads.file(JOINED.init).write_bytes(b"model")
    model.settle(JOINED, letter)


def test_it_is_opened_once(tmp_path: Path, model: FirstModel, downloads: Downloads) -> None:
    """A site that comes back finds it, and the download is gone."""
    settle(model, downloads)
    assert (b"model", None) == (
        model.file.read_bytes(),
        FirstModel(tmp_path, pin(), downloads).accept(JOINED),
    )
    assert not downloads.file(JOINED.init).exists()


def test_another_one_is_fetched(model: FirstModel, downloads: Downloads) -> None:
    """What lies there is of another digest."""
    settle(model, downloads)
    assert model.accept(Joined(JOINED.spec, Blob("e" * 64, 5))) is not None


def test_the_note_does_not_outlive_the_model(
    model: FirstModel, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut while another one is opened over it: no note says that what lies there is whole."""
    settle(model, downloads)
    other = Joined(JOINED.spec, Blob("e" * 64, 5))
    downloads.file(other.init).write_bytes(b"other")

    def fail(path: Path) -> None:
        raise OSError(f"power cut before {path.name} is on the disk")

    monkeypatch.setattr(atomic, "sync", fail)
    with pytest.raises(OSError, match=r"init\.raw"):
        model.settle(other, model.accept(other))
    assert model.accept(JOINED) is not None


def test_room_for_both_of_its_forms(
    model: FirstModel, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it comes and opened; what has come already is not counted again."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=(4 << 20) + 7))
    with pytest.raises(DiskFull):
        model.check_room(JOINED)
    downloads.file(JOINED.init).write_bytes(b"mod")
    model.check_room(JOINED)
