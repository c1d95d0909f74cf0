"""`--list-backbones` names every network a run can name, and where each comes from."""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console

from pfl_common import models
from pfl_common.app import completion, plugins
from pfl_server.method_help import networks
from tests.common.support.installed import install


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with a network."""
    install(tmp_path, "outside-pfl", "1.0", points={"pfl.backbones": {"mine": "nowhere:make"}})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget()
    yield
    plugins.forget()


def test_as_plain_values(package: None) -> None:
    """Our own with a sentence, others with what they come from; what is listed is a name a run can have."""
    rows = {row["backbone"]: row for row in networks.list_all()}
    assert set(rows) == {*models.names(), "mine", *models.list_torchvision()}
    assert all(rows[name]["about"] and rows[name]["from"] == "pfl" for name in models.names())
    assert ("outside-pfl 1.0", f"torchvision {version('torchvision')}") == (
        rows["mine"]["from"],
        rows["torchvision:vit_b_16"]["from"],
    )
    for name in rows:
        models.check_name(name)


def test_for_people(package: None) -> None:
    """Every name, and the package."""
    said = io.StringIO()
    networks.show_all(Console(file=said, width=100))
    words = said.getvalue()
    assert [] == [name for name in (*models.names(), *models.list_torchvision()) if name not in words]
    assert "mine: from the installed package outside-pfl 1.0" in words
    assert "cnn: Two convolutions and one fully connected layer" in words


def test_the_shell_knows_torchvisions_names() -> None:
    """Read from its source text: the very names that it lists when it is imported."""
    known = completion.complete_backbones("torchvision:")
    assert set(models.list_torchvision()) == set(known)
    assert "torchvision:resnet18" in completion.complete_backbones("torchvision:res")
