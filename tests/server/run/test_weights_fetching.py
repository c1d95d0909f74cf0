"""Which file `--weights` means, and what is said where it is not there. Nothing here reaches a network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from structlog.testing import capture_logs

from pfl_common.errors import SettingError
from pfl_server.run.weights_fetching import digest_if_here, find_source, have_file
from pfl_server.settings import ServerSettings

NAME = "ResNet18_Weights.IMAGENET1K_V1"
FILE = "resnet18-f37072fd.pth"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where torchvision keeps its files."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path / "hub" / "checkpoints"


def test_none_is_asked_for() -> None:
    """Then there is none."""
    assert find_source(ServerSettings()) is None
    assert "" == digest_if_here(ServerSettings())


def test_a_named_file(tmp_path: Path) -> None:
    """Without its folder for people, and like published weights if it is said to be."""
    file = tmp_path / "mine.pth"
    file.write_bytes(b"1")
    settings = ServerSettings(weights=str(file), weights_like=NAME)
    source = have_file(find_source(settings), settings)
    assert ("mine.pth", file, NAME) == (source.name, source.file, source.published.name)
    assert hashlib.sha256(b"1").hexdigest() == digest_if_here(settings)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    """Those near it are named."""
    (tmp_path / "resnet18.pth").write_bytes(b"1")
    settings = ServerSettings(weights=str(tmp_path / "resnet81.pth"))
    with pytest.raises(SettingError, match=r"resnet81\.pth") as refused:
        have_file(find_source(settings), settings)
    assert "resnet18.pth" in refused.value.expected
    assert "" == digest_if_here(settings)


def test_torchvisions_file_is_taken_where_it_lies(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not fetched; and one that is not the published one is taken, as torchvision does, but not in silence."""
    monkeypatch.setattr(torch.hub, "download_url_to_file", None)
    cache.mkdir(parents=True)
    (cache / FILE).write_bytes(b"1")
    settings = ServerSettings(weights=NAME)
    with capture_logs() as said:
        assert cache / FILE == have_file(find_source(settings), settings).file
    (warning,) = said
    assert ("warning", "f37072fd") == (warning["log_level"], warning["expected"])


def test_torchvisions_file_is_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its own address, held to the hash in its name."""
    asked: list[tuple[str, str]] = []

    def fetch(url: str, into: str, start: str, *, progress: bool) -> None:
        asked.append((url, start))
        Path(into).write_bytes(b"1")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fetch)
    settings = ServerSettings(weights=NAME)
    with capture_logs():
        assert b"1" == have_file(find_source(settings), settings).file.read_bytes()
    assert [(f"https://download.pytorch.org/models/{FILE}", "f37072fd")] == asked


@pytest.mark.parametrize(
    "fault", [URLError("no route"), RuntimeError('invalid hash value (expected "f37072fd")'), TimeoutError()]
)
def test_a_machine_that_cannot_fetch(fault: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to bring, from where, and the two ways to give it."""

    def fail(*words: object, **more: object) -> None:
        raise fault

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    settings = ServerSettings(weights=NAME)
    with capture_logs(), pytest.raises(SettingError, match=r"download\.pytorch\.org") as refused:
        have_file(find_source(settings), settings)
    assert str(cache / FILE) in refused.value.expected
    assert f"https://download.pytorch.org/models/{FILE}" in refused.value.advice
    assert f"--weights FILE --weights-like {NAME}" in refused.value.advice


@pytest.mark.parametrize(
    "words",
    [
        {"weights_like": NAME},
        {"weights": NAME, "weights_like": NAME},
        {"weights": "ResNet19_Weights.IMAGENET1K_V1"},
        {"weights": "mine.pth", "weights_like": "resnet18"},
    ],
)
def test_words_that_do_not_go_together(words: dict[str, str]) -> None:
    """A file's words without a file, or beside a name that says them itself; names that there are not."""
    with pytest.raises(SettingError) as refused:
        find_source(ServerSettings(**words))
    assert refused.value.expected
    assert refused.value.advice
