"""An environment for each peer, made from its list of pinned versions and kept for the next time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LISTS = Path(__file__).parent
MAIN_PACKAGE = {"flower": "flwr", "nvflare": "nvflare"}
LONGEST_INSTALLATION = 1200


class NotInstalled(Exception):
    """A peer cannot be installed on this machine; the message says what was tried and what came."""


def find_cache() -> Path:
    """Where environments are kept unless told otherwise."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pfl-benchmarks" / "peers"


def prepare(peer: str, folder: Path) -> Path:
    """The environment of a peer; made afresh when its list is not the one it was made from."""
    environment = folder / peer
    wanted = lock_of(peer).read_text(encoding="utf-8")
    made_from = environment / "made-from.lock"
    if not made_from.is_file() or made_from.read_text(encoding="utf-8") != wanted:
        _make(peer, environment)
        made_from.write_text(wanted, encoding="utf-8")
    return environment


def lock_of(peer: str) -> Path:
    """The list of versions a peer is installed from."""
    return LISTS / f"{peer}.lock"


def version_of(peer: str) -> str:
    """The peer's own version, as pinned."""
    name = f"{MAIN_PACKAGE[peer]}=="
    lines = lock_of(peer).read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix(name) for line in lines if line.startswith(name))


def _make(peer: str, environment: Path) -> None:
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [str(environment / "bin" / "pip"), "install", "--quiet", "-r", str(lock_of(peer))],
    )
    for step in steps:
        try:
            done = subprocess.run(
                step,
                timeout=LONGEST_INSTALLATION,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotInstalled(f"{peer} cannot be installed: {error}") from None
        if done.returncode:
            told = (done.stderr or done.stdout).strip().splitlines()
            words = f"`{' '.join(step)}` ended with {done.returncode}: {told[-1] if told else 'no words'}"
            raise NotInstalled(f"{peer} cannot be installed: {words}")
