"""Freed memory stays for the next use where that is asked for, and goes back when nobody needs it."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pfl_common.app import allocator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="speaks to glibc")

STEPS = """
import json, resource, sys
from pathlib import Path
from pfl_common.app import allocator

def step():
    # Blocks of a training step: together more than goes back by default.
    blocks = [bytearray(size << 20) for size in (9, 12, 3, 7, 20)]
    for block in blocks:
        block[::4096] = bytes(len(block[::4096]))

def resident():
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])

if sys.argv[1] == "warm":
    allocator.keep_batches_warm()
step()
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
held = resident()
allocator.let_go_of_free_memory(beyond=64 << 20)
few = resident()
allocator.let_go_of_free_memory(beyond=16 << 20)
print(json.dumps([faults, held, few, resident()]))
"""


def play(kind: str) -> list[int]:
    """Pages that came anew in the third step; what was held after it, when more than that was to be let go, and when
    all of it was.
    """
    command = [sys.executable, "-c", STEPS, kind]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.parametrize(("told", "given"), [({}, [0]), ({"mallinfo2": lambda: SimpleNamespace(free=9)}, [])])
def test_where_nobody_tells_how_much_is_free_all_goes_back(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Callable[[], object]], given: list[int]
) -> None:
    """A glibc before 2.33; a newer one has fewer bytes than may stay."""
    trimmed = list[int]()
    libc = SimpleNamespace(malloc_trim=trimmed.append, **told)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: libc)
    allocator.let_go_of_free_memory(beyond=10)
    assert given == trimmed


def test_what_this_process_holds() -> None:
    """It is at least what an interpreter takes, and grows with what is touched."""
    before = allocator.read_resident()
    # Mapped anew, because the allocator may have as much that was let go of by an earlier test.
    with mmap.mmap(-1, 64 << 20) as block:
        block.write(b"1" * len(block))
        assert 4 << 20 < before <= allocator.read_resident() - (len(block) >> 1)


def test_a_step_finds_the_memory_of_the_last_one() -> None:
    """Where nobody asks for it, it comes page by page; what was kept is given back if it is more than may stay."""
    usual, *_ = play("usual")
    warm, held, few, left = play("warm")
    assert usual > 1000
    assert warm < 50
    assert held - few < 1 << 20
    assert held - left > 30 << 20
