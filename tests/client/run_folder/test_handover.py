"""Large parcels between daemon and trainer: memory that both see, or a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_client.run_folder import handover
from pfl_client.run_folder.handover import SHARED_LIMIT, Handover
from pfl_client.trainer_process.large_parcels import MESSAGE_LIMIT

LARGE = MESSAGE_LIMIT + 1
needs_memory = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has files alone")


@pytest.fixture
def place(tmp_path: Path) -> Handover:
    """One that was never used."""
    return Handover(tmp_path / "parcel.raw")


@needs_memory
def test_another_process_reads_and_writes_it(place: Handover, tmp_path: Path) -> None:
    """By its path, as a file; nothing of it is on the disk, and it needs no room there."""
    path = place.place(LARGE)
    path.write_bytes(b"from the daemon")
    program = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.write_bytes(p.read_bytes()[::-1])"
    subprocess.run((sys.executable, "-c", program, str(path)), check=True)
    assert b"nomead eht morf" == path.read_bytes()
    assert ([], 0) == (list(tmp_path.iterdir()), place.lacking(LARGE))
    place.let_go()


@needs_memory
def test_it_is_the_same_memory_until_it_is_given_back(place: Handover) -> None:
    """Written over by the next parcel; given back once, and beyond a size only if it is larger."""
    first = place.place(LARGE)
    first.write_bytes(b"12345")
    assert (first, b"12345") == (place.place(SHARED_LIMIT), first.read_bytes())
    assert [False, True, False] == [place.let_go(beyond=5), place.let_go(beyond=4), place.let_go()]
    assert not first.exists()
    place.place(LARGE)
    assert place.let_go()


@needs_memory
def test_it_is_written_where_it_lies(place: Handover) -> None:
    """What is written to the memory is read by its path; over the same pages again, also after somebody has cut it, and
    in another size.
    """
    for size, cut in ((LARGE, False), (LARGE, True), (LARGE + 7, False), (LARGE, False)):
        if cut:
            os.truncate(place.place(LARGE), 0)
        memory = place.memory(size)
        assert memory is not None
        memory[-3:] = b"end"
        assert (size, b"end") == (len(memory), place.place(size).read_bytes()[-3:])
        del memory
    assert place.let_go()
    assert [None, None] == [place.memory(SHARED_LIMIT + 1), place.memory(MESSAGE_LIMIT)]


@pytest.mark.parametrize("how", ["too large", "no such memory"])
def test_otherwise_it_is_a_file(
    place: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also where a system has no such memory; what is there already is not counted as lacking."""
    size = SHARED_LIMIT + 1 if how == "too large" else LARGE
    if how != "too large":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    assert (tmp_path / "parcel.raw", size) == (place.place(size), place.lacking(size))
    place.place(size).write_bytes(b"123")
    assert size - 3 == place.lacking(size)
    assert [False, True, False] == [place.let_go(beyond=3), place.let_go(), place.let_go()]


def test_what_a_killed_site_has_left_goes(tmp_path: Path) -> None:
    """A file of an earlier life is nobody's."""
    (tmp_path / "parcel.raw").write_bytes(b"old")
    Handover(tmp_path / "parcel.raw")
    assert [] == list(tmp_path.iterdir())


def test_a_small_parcel_has_no_place(place: Handover) -> None:
    """It goes in a message."""
    assert 0 == place.lacking(MESSAGE_LIMIT)
    assert handover.SHARED_LIMIT > MESSAGE_LIMIT
