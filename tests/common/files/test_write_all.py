"""All bytes come to their place, however few the system takes at a time."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from pfl_common.files import write_all
from pfl_common.sealing import Vouched, bind, open_over_file, seal_bytes
from tests.house.skeleton import PACKAGES

ROOT = Path(__file__).parents[3]
BARE = re.compile(r"\bos\.p?writev?\(")


@pytest.fixture
def reluctant(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A system that takes at most three bytes at a time; says where each piece of them went."""
    pwrite, places = os.pwrite, []

    def write_some(file: int, content: memoryview, offset: int) -> int:
        places.append(offset)
        return pwrite(file, content[:3], offset)

    monkeypatch.setattr(os, "pwrite", write_some)
    return places


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_all_of_it_comes_to_its_place(tmp_path: Path, reluctant: list[int], form: type) -> None:
    """What lies before and behind stays."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789ab")
    with path.open("r+b", buffering=0) as file:
        write_all.write_at(file.fileno(), form(b"ABCDEFGH"), 2)
        write_all.write_at(file.fileno(), form(b""), 0)
    assert (b"01ABCDEFGHab", [2, 5, 8]) == (path.read_bytes(), reluctant)


def test_a_parcel_is_opened_over_a_longer_file(tmp_path: Path, reluctant: list[int]) -> None:
    """Its frames follow one another, and what the file held beyond is gone."""
    sealed, out, header = (
        tmp_path / "sealed",
        tmp_path / "out",
        b'{"direction":"down","sender":"coordinator"}',
    )
    found = seal_bytes(b"the content", sealed, header)
    out.write_bytes(b"x" * 100)
    vouched = Vouched(bind(header), found.digest, found.size)
    open_over_file(sealed, out, key=found.content_key, vouched=vouched)
    assert (b"the content", [0, 3, 6, 9]) == (out.read_bytes(), reluctant)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is the caller's to explain."""

    def refuse(*words: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="no space left"):
        write_all.write_at(file.fileno(), b"content", 0)


def test_nothing_else_writes_by_itself() -> None:
    """A call of the system without this loop loses what it did not take."""
    sources = (path for name, room in PACKAGES.items() for path in (ROOT / room / name).rglob("*.py"))
    bare = [str(path.relative_to(ROOT)) for path in sources if BARE.search(path.read_text())]
    assert ["common/pfl_common/files/write_all.py"] == bare
