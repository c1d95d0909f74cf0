"""What becomes of a program whose log cannot be written."""

from __future__ import annotations

import errno
import io
import json
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import structlog

from pfl_common import logs
from pfl_common.errors import SettingError


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


@pytest.mark.parametrize(("word", "is_json"), [("text", False), ("auto", False), ("json", True)])
def test_a_log_is_as_its_format_says(monkeypatch: pytest.MonkeyPatch, word: str, *, is_json: bool) -> None:
    """One object a line for machines, words for people; the older word `auto` means words."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure_from(word)
    structlog.get_logger("pfl.test").info("here")
    structlog.reset_defaults()
    assert is_json == stream.getvalue().startswith("{")
    assert "here" in stream.getvalue()


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("word", ["text", "json"])
@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_line_says_on_which_day(
    monkeypatch: pytest.MonkeyPatch, word: str, kind: type[io.StringIO]
) -> None:
    """Runs take days: each line has its whole moment, in universal time and said to be; in a file as one word."""
    stream, before = kind(), datetime.now(UTC).replace(microsecond=0)
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure_from(word)
    structlog.get_logger("pfl.test").info("here")
    structlog.reset_defaults()
    line = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    words = json.loads(line)["timestamp"] if word == "json" else line.partition("[")[0].strip()
    assert before <= datetime.fromisoformat(words) <= datetime.now(UTC)
    assert (word == "text" and kind is Terminal) == (" " in words)


def test_a_format_nobody_knows() -> None:
    """The nearest right word is named, instead of a log in another format than was asked for."""
    with pytest.raises(
        SettingError, match=r"no log format 'jsn'\n.*did you mean 'json'\? known: auto, json, text"
    ):
        logs.configure_from("jsn")
