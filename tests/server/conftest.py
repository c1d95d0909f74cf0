"""A network of a dozen numbers for every test of this room, and the builders' fixtures."""

from __future__ import annotations

import os

import pytest
import torch

from pfl_common.models import catalogue
from tests.server.federation import build_tiny

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_power_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the disk: these tests kill the process, never the power."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this room name the backbone `tiny`: a checkpoint of it is read at a glance."""
    monkeypatch.setitem(catalogue._BACKBONES, "tiny", build_tiny)
