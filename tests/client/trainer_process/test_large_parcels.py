"""A parcel goes inside a message up to the limit, and beyond it as a file, or as memory that both see."""

import os
from pathlib import Path

import pytest

from pfl_client.trainer_process.large_parcels import MESSAGE_LIMIT, goes_as_file, lies_in_memory


def test_the_limit_itself_still_fits() -> None:
    """One byte more does not."""
    assert not goes_as_file(MESSAGE_LIMIT)
    assert goes_as_file(MESSAGE_LIMIT + 1)


def test_a_file_is_no_memory(tmp_path: Path) -> None:
    """Nor is one that is not there yet, or a link to one."""
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert [False] * 3 == [lies_in_memory(tmp_path / name) for name in ("file", "gone", "link")]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has files alone")
def test_memory_is_known_by_its_path() -> None:
    """As the daemon names it to its trainer."""
    number = os.memfd_create("update.raw", os.MFD_CLOEXEC)
    assert lies_in_memory(Path(f"/proc/{os.getpid()}/fd/{number}"))
    os.close(number)
