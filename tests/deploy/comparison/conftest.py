"""What the tests of comparisons share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.comparison.given import write_data, write_plan


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Two contestants with a step to choose."""
    return write_plan(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two sites with all parts."""
    return write_data(tmp_path / "data")
