"""Tells whether a process still runs, by its number and start time, since numbers are reused."""

import subprocess
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_STATE, _START = 0, 19  # places after the name in /proc/PID/stat


def process_mark(pid: int) -> str | None:
    """A text that belongs to this one process and to no later one with its number; None if none runs."""
    if pid <= 0:
        return None
    if (_PROC / "self/stat").exists():
        return _mark_from_proc(pid)
    return _mark_from_ps(pid)


def boot_of(mark: str) -> str:
    """Which start of the machine a mark counts from, as far as it says."""
    return mark.rpartition(":")[0]


def _mark_from_proc(pid: int) -> str | None:
    try:
        # The process's own name stands in parentheses and may contain anything, so count from the last one.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    if fields[_STATE] in (b"Z", b"X"):
        return None
    boot = b""
    with suppress(OSError):
        # The start is counted from the boot: after another boot the same count could come again.
        boot = (_PROC / "sys/kernel/random/boot_id").read_bytes().strip()
    return f"{boot.decode()}:{fields[_START].decode()}"


def _mark_from_ps(pid: int) -> str | None:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(
        command, capture_output=True, check=False, timeout=10, env={"LC_ALL": "C", "PATH": "/bin:/usr/bin"}
    )
    return answer.stdout.decode("ascii", "replace").strip() or None
