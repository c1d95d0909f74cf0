"""Structured logs: one line per event, JSON on request; never a secret, never a tensor."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, TextIO, cast

import structlog

from pfl_common.app.terminal import takes_colours
from pfl_common.errors import SettingError, nearest
from pfl_common.printable import printable, set_in

FORMATS = ("text", "json", "auto")
"""What `--log-format` may say; `auto` is another word for `text`, whose lines have colours on a terminal only."""
ON_A_TERMINAL = "%Y-%m-%d %H:%M:%SZ"
"""How a line begins where a person reads it: by the second, of universal time as in a file."""


HERE_ALONE = "on_terminal"
"""A key of log lines: what it holds, names of data files, is shown on a terminal and nowhere else."""


class Unfailing:
    """A stream that loses a line rather than end its program: logs often lie on the disk that is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if that is possible."""
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Pass on what was written, if that is possible."""
        with suppress(OSError):
            self._stream.flush()


class Terminal(Unfailing):
    """A terminal whose last line may be a live one: it is wiped before other output and drawn again below it."""

    def __init__(self, stream: TextIO, *, shared: bool = False) -> None:
        """One that is `shared` may show a live line of the program that started this one."""
        super().__init__(stream)
        self._live, self._drawn, self._whole, self._shared = "", False, True, shared

    def write(self, text: str) -> int:
        """Write where the live line was; with the end of a line it is drawn again."""
        self._wipe()
        super().write(text)
        self._whole = text.endswith("\n")
        self._draw()
        return len(text)

    def show(self, text: str) -> None:
        """Draw another live line; an empty one takes it away."""
        self._live = text
        self._wipe()
        self._draw()
        self.flush()

    def _wipe(self) -> None:
        if self._drawn or (self._shared and self._whole):
            super().write(_WIPE)
        self._drawn = False

    def _draw(self) -> None:
        if self._live and self._whole:
            # One that is wider would wrap, and could not be wiped. From the first column others may write over it.
            super().write(self._live[: self._width() - 1] + "\r")
            self._drawn = True

    def _width(self) -> int:
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        return 80


_WIPE = "\r\x1b[2K"
STYLE = "PFL_LOG_FORMAT"
"""The variable by which a program that another one starts hears how that one's log is written."""
_screen: Terminal | None = None
_style = "text"


def can_show() -> bool:
    """Whether there is a terminal for a live line: one that can wipe a line, and a log for people."""
    return _screen is not None


def show(text: str) -> None:
    """Show a line below the log that each call replaces; an empty one goes. Nothing where there is no terminal."""
    if _screen is not None:
        _screen.show(printable(text))


def configure_from(word: str) -> None:
    """Set up logging as `--log-format` says; a word that says nothing is an error."""
    if word not in FORMATS:
        raise SettingError(
            f"there is no log format {word!r}",
            expected=nearest(word, FORMATS),
            advice="for example --log-format json",
        )
    configure("json" if word == "json" else "text")


def configure_beside() -> None:
    """Set up logging for a program that another one started and shares standard error with: as that one's."""
    configure("json" if os.environ.get(STYLE) == "json" else "text", shared=True)


def style() -> str:
    """How this program's log is written."""
    return _style


def configure(style: Literal["text", "json"] = "text", *, level: str = "info", shared: bool = False) -> None:
    """Set up logging for a program; everything goes to standard error."""
    global _screen, _style  # the program's one standard error
    _style, terminal = style, style == "text" and sys.stderr.isatty()
    _screen = (
        Terminal(sys.stderr, shared=shared) if terminal and os.environ.get("TERM", "dumb") != "dumb" else None
    )
    coloured = style == "text" and takes_colours(sys.stderr)
    renderer: structlog.types.Processor
    if style == "json":
        renderer = structlog.processors.JSONRenderer(sort_keys=True)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=coloured, pad_event_to=0)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Formatter())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _show_names if terminal else _hide_names,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=ON_A_TERMINAL if terminal else "iso"),
            structlog.processors.format_exc_info,
            _show_signs,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _screen or Unfailing(sys.stderr))),
    )


def _show_names(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    del logger, method  # as structlog calls it
    names = event.pop(HERE_ALONE, {})
    return {**event, **names}


def _hide_names(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    del logger, method  # as structlog calls it
    event.pop(HERE_ALONE, None)
    return event


def _show_signs(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """The one place where everything that is logged goes through: peers' words are shown, and never obeyed."""
    del logger, method  # as structlog calls it
    shown = {printable(str(name)): _clean(value) for name, value in event.items() if name != _TRACEBACK}
    if _TRACEBACK in event:
        shown[_TRACEBACK] = set_in(str(event[_TRACEBACK]))
    return shown


_TRACEBACK = "exception"
"""What structlog calls the lines of a traceback."""


def _clean(value: object) -> object:
    """Words wherever they stand; what is neither words nor a heap of them is shown by its repr, which is printable."""
    match value:
        case str():
            return printable(value)
        case int() | float() | None:
            return value
        case Mapping():
            return {printable(str(name)): _clean(inner) for name, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(inner) for inner in value]
        case _:
            return value


class _Formatter(logging.Formatter):
    """For what a library says by the standard's own log: it goes to standard error as well."""

    def format(self, record: logging.LogRecord) -> str:
        """One message, its traceback below it."""
        return set_in(super().format(record))
