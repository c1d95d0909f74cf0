"""Colours are for terminals that take them, and for people who want them."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout

import pytest
import structlog
from rich.table import Table
from rich.text import Text

from pfl_common.app import logs
from pfl_common.app.terminal import console, takes_colours
from tests.common.support.terminal_attacks import ATTACKS, list_obeyed


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal that takes colours."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return Terminal()


def say(screen: io.StringIO) -> str:
    """What a table's head, an error and a line of the log leave there."""
    with redirect_stdout(screen), redirect_stderr(screen):
        console().print("bold", style="bold red")
        console(stderr=True).print("red", style="red")
        try:
            logs.configure()
            structlog.get_logger("toy").info("ready", port=1)
        finally:
            structlog.reset_defaults()
    return screen.getvalue()


def test_a_terminal_gets_colours(screen: Terminal) -> None:
    """Else the tests below would show nothing."""
    assert takes_colours(screen)
    assert say(screen).count("\x1b[") > 4


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_plain_words_for_who_asks_for_them(
    screen: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Not one control character, in words and in logs."""
    monkeypatch.setenv(name, value)
    said = say(screen)
    assert "\x1b" not in said
    assert "bold" in said
    assert "port=1" in said


def test_a_file_is_no_terminal(screen: Terminal) -> None:
    """What is redirected is read by programs."""
    assert "\x1b" not in say(io.StringIO())


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_console_shows_and_does_not_obey(kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, cells and headings of a peer; the console's own colours stay. Brackets are no markup."""
    monkeypatch.setenv("TERM", "xterm-256color")
    hostile = "".join(ATTACKS.values())
    for printed in (hostile, Text(hostile, "red"), "[/b][link=http://elsewhere.example]x"):
        table = Table(hostile)
        table.add_row(printed)
        with redirect_stdout(kind()) as shown:
            console().print(printed)
            console().print(table)
        plain = re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue())
        assert [] == list_obeyed(plain)
        assert ("[/b]" in plain) == (printed not in (hostile, table) and isinstance(printed, str))
