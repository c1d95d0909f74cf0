"""Freed memory stays for the next use where that is asked for, and goes back when nobody needs it."""

from __future__ import annotations

import json
import subprocess
import sys

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
allocator.let_go_of_free_memory()
print(json.dumps([faults, held, resident()]))
"""


def play(kind: str) -> list[int]:
    """Pages that came anew in the third step; what was held after it, and when it was let go."""
    command = [sys.executable, "-c", STEPS, kind]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_little_stays_and_much_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a small task nothing is asked of the system; what is held is measured from the last time it was."""
    gone, held = list[int](), [100 << 20]
    monkeypatch.setattr(allocator, "read_resident", lambda: held[-1])
    monkeypatch.setattr(allocator, "let_go_of_free_memory", lambda: gone.append(held[-1] >> 20))
    warm = allocator.WarmMemory()
    for mib in (100, 131, 133, 164, 166):
        held.append(mib << 20)
        warm.let_go()
    assert [100, 133, 166] == gone


def test_what_this_process_holds() -> None:
    """It is at least what an interpreter takes, and grows with what is touched."""
    before = allocator.read_resident()
    block = bytearray(b"1") * (64 << 20)
    assert 4 << 20 < before <= allocator.read_resident() - (len(block) >> 1)


def test_a_step_finds_the_memory_of_the_last_one() -> None:
    """Where nobody asks for it, it comes page by page; what was kept is given back."""
    usual, _, _ = play("usual")
    warm, held, left = play("warm")
    assert usual > 1000
    assert warm < 50
    assert held - left > 30 << 20
