"""A corner of the machine with its own loopback and its own process numbers.

What its loopback counts is the federation's traffic and nobody else's, nothing listens beyond it, and when the
first process ends the kernel ends all others with it, however they were started. It ends with its opener.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

TIED = ("setpriv", "--pdeathsig", "KILL")
WALLS = ("--net", "--pid", "--mount-proc", "--fork", "--kill-child=KILL")


def enclosed(command: Sequence[str]) -> list[str]:
    """The command that runs another one inside a corner of its own."""
    return [*_find_walls(), *command]


def raise_loopback() -> None:
    """Inside: make 127.0.0.1 reachable; a fresh corner has it switched off."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)


def _find_walls() -> list[str]:
    as_user = [] if os.geteuid() == 0 else ["--map-root-user"]
    walls = [*TIED, "unshare", *as_user, *WALLS]
    tried = subprocess.run([*walls, "true"], capture_output=True, text=True, timeout=30, check=False)
    if tried.returncode:
        raise OSError(
            f"this machine gives no network of one's own: `{' '.join(walls)} true` said {tried.stderr.strip()!r}. "
            "Run as root on Linux, or where users may make namespaces"
        )
    return walls
