"""A network of a dozen numbers for every test of this room, and the builders' fixtures."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from pfl_common.models import catalogue
from tests.server.support.federation import build_spec, build_tiny
from tests.server.support.scene import Scene

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_power_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the disk: these tests kill the process, never the power."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this room name the backbone `tiny`: a checkpoint of it is read at a glance."""
    monkeypatch.setitem(catalogue._BACKBONES, "tiny", build_tiny)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path, build_spec(lease_seconds=15.0))
    yield scene
    await scene.close()
