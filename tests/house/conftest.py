"""An empty house for each test to spoil."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.skeleton import Skeleton


@pytest.fixture
def skeleton(tmp_path: Path) -> Skeleton:
    """The house with empty rooms, in a folder of its own."""
    house = Skeleton(tmp_path)
    house.build()
    return house
