"""What the tests of journals share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_server.store.journal import Journal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the journal lies."""
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(file: Path) -> Iterator[Journal]:
    """A new one, open."""
    journal = Journal(file)
    yield journal
    journal.close()
