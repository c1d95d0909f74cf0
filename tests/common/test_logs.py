"""What becomes of a program whose log cannot be written."""

from __future__ import annotations

import errno
import io
import subprocess
import sys

import pytest
import structlog

from pfl_common import logs


class Full(io.StringIO):
    """A stream on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_does_not_end_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is lost and nothing else; a stream with room gets its lines."""
    for stream, expected in ((Full(), False), (io.StringIO(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        logs.configure("json")
        structlog.get_logger("pfl.test").info("still here")
        assert expected == ("still here" in stream.getvalue())
    structlog.reset_defaults()


def test_a_daemon_loads_nothing_for_colours() -> None:
    """An idle site pays for every module; a traceback in colours is worth none of them."""
    found = "import pfl_client.cli, pfl_client.site, sys; print({'rich', 'pygments'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert "set()" == done.stdout.strip()
