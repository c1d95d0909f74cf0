"""Colours are for terminals that take them, and for people who want them."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
import structlog

from pfl_common.app import logs
from pfl_common.app.terminal import console, takes_colours


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
