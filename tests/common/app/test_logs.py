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

from pfl_common.app import logs
from pfl_common.errors import SettingError
from tests.common.support.terminal_attacks import ATTACKS, list_obeyed


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


@pytest.mark.parametrize("program", ["pfl_client", "pfl_server"])
def test_a_daemon_loads_nothing_for_colours(program: str) -> None:
    """An idle program pays for every module; a traceback in colours is worth none of them."""
    found = f"import {program}.cli, {program}.process, sys; print({{'rich', 'pygments'}} & set(sys.modules))"
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


def screen(stream: io.StringIO) -> list[str]:
    """What a person sees: the lines of a terminal, colours left out."""
    lines = [""]
    for part in re.split(r"(\r\x1b\[2K|\r|\n)", re.sub(r"\x1b\[\d*m", "", stream.getvalue())):
        if part == "\n":
            lines.append("")
        elif part == "\r\x1b[2K":
            lines[-1] = ""
        elif part != "\r":
            assert not lines[-1] or not part, "two texts on one line"
            lines[-1] += part
    return [line.partition("] ")[2] or line for line in lines]


def test_a_live_line_stays_below_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is wiped for a line of the log and drawn again below; a new one replaces it, and at the end it is gone."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    logs.configure_from("text")
    log = structlog.get_logger("pfl.test")
    logs.show("training 1")
    assert ["training 1"] == screen(stream)
    log.info("here")
    assert ["here", "training 1"] == screen(stream)
    logs.show("training 2")
    assert ["here", "training 2"] == screen(stream)
    logs.show("")
    log.info("there")
    assert ["here", "there", ""] == screen(stream)
    logs.show("x" * 200)
    assert 79 == len(screen(stream)[-1]), "a line that wraps could not be wiped"
    structlog.reset_defaults()


@pytest.mark.parametrize("word", ["text", "json"])
def test_a_program_that_another_one_started(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Its lines are written as the other's, and where that one's live line was."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    logs.configure_from(word)
    logs.show("training")
    monkeypatch.setenv(logs.STYLE, logs.style())
    logs.configure_beside()
    structlog.get_logger("pfl.test").info("here")
    structlog.reset_defaults()
    assert (word == "json") == stream.getvalue().startswith("{")
    assert word == "json" or ["here", ""] == screen(stream)


@pytest.mark.parametrize(
    ("kind", "word", "term"),
    [(io.StringIO, "text", "xterm"), (Terminal, "json", "xterm"), (Terminal, "text", "dumb")],
    ids=["a pipe", "json", "a dumb terminal"],
)
def test_no_live_line(monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], word: str, term: str) -> None:
    """Where it could not be wiped, or nobody looks, nothing of it is written."""
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", term)
    logs.configure_from(word)
    assert not logs.can_show()
    logs.show("training")
    assert "" == stream.getvalue()
    structlog.reset_defaults()


@pytest.mark.parametrize("word", ["text", "json"])
def test_a_peers_words_are_shown_and_not_obeyed(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Wherever they stand in a line: event, value, name, list, mapping, traceback; a line is one line and no other."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure_from(word)
    log, hostile = structlog.get_logger("pfl.test"), "".join(ATTACKS.values())
    log.warning(hostile, why=hostile, inner={hostile: [hostile, (hostile, 1)]}, **{hostile: 1})
    try:
        raise ValueError(hostile)
    except ValueError:
        log.exception("a fault")
    structlog.reset_defaults()
    said = stream.getvalue()
    assert [] == list_obeyed(said)
    for line in said.splitlines() if word == "json" else ():
        assert [] == list_obeyed("".join(_strings(json.loads(line))))
    starts = [line for line in said.splitlines() if re.match(r"\{|\S*\d{4}-\d\d-\d\dT", line)]
    assert 2 == len(starts)


def _strings(value: object) -> list[str]:
    """All words in a value read from JSON, as another program would show them."""
    if isinstance(value, dict):
        return [word for name, one in value.items() for word in (name, *_strings(one))]
    if isinstance(value, list):
        return [word for one in value for word in _strings(one)]
    return [value] if isinstance(value, str) else []


ENDS = """
import sys
from pfl_common.app import logs, program
from pfl_common.errors import DataError
from tests.common.support.terminal_attacks import ATTACKS
import logging, structlog

hostile = "".join(ATTACKS.values())
app = program.make_app()

@app.command()
def end(way: str) -> None:
    logs.configure_from("text")
    structlog.get_logger("pfl").error("why", words=hostile)
    logging.getLogger("library").warning(hostile)
    if way == "error":
        raise DataError(hostile, expected=hostile, advice=hostile)
    raise RuntimeError(hostile)

program.run("ends", app)
"""


@pytest.mark.parametrize(("way", "code"), [("error", 3), ("fault", 1)])
def test_a_program_ends_in_words_that_no_terminal_obeys(way: str, code: int) -> None:
    """Log, a library's own log, error and traceback, as they come out of a real process."""
    done = subprocess.run([sys.executable, "-c", ENDS, way], capture_output=True, check=False)
    said = done.stderr.decode(errors="surrogateescape")
    assert code == done.returncode
    assert [] == list_obeyed(said)
    assert 3 <= said.count("gpj.exe")
    # Its own two lines have a moment in front; the one that a peer has written has none in the first column.
    assert 1 == len([line for line in said.splitlines() if re.match(r"\d{4}-\d\d-\d\dT", line)])
