"""The lock on a state folder is held by one daemon, and by none that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_client.run_folder.folder_lock import FolderLock
from pfl_common.errors import StateError


def test_a_killed_daemon_leaves_no_lock(tmp_path: Path) -> None:
    """The system gives the lock back when its process ends, however it ends."""
    program = (
        "import sys, pathlib; from pfl_client.run_folder.folder_lock import FolderLock\n"
        "lock = FolderLock(pathlib.Path(sys.argv[1]), 'vault.lock'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, os.fspath(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert b"held\n" == other.stdout.readline()
        with pytest.raises(StateError):
            FolderLock(tmp_path, "vault.lock")
        other.kill()
        other.wait()
        FolderLock(tmp_path, "vault.lock").release()
