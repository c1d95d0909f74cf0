"""The results of an examination: one line each, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pfl_common.errors import PflError, UserError

Level: TypeAlias = Literal["ok", "warning", "error"]
GIB = 1 << 30


@dataclass(frozen=True)
class Check:
    """The result of one check. Its text holds no secret, so that it can be sent to somebody who helps."""

    about: str
    level: Level
    words: str
    advice: str = ""
    code: int = 1
    """The exit code of the program if this is an error."""


def ok(about: str, words: str) -> Check:
    """Nothing is wrong with it."""
    return Check(about, "ok", words)


def warning(about: str, words: str, *, advice: str = "") -> Check:
    """It works, or may work; somebody should know."""
    return Check(about, "warning", words, advice)


def error(about: str, words: str, *, advice: str = "", code: int = 1) -> Check:
    """It does not work."""
    return Check(about, "error", words, advice, code)


def of_error(about: str, raised: BaseException) -> Check:
    """An error of a program, as the result of a check."""
    if isinstance(raised, UserError):
        expected = f"; expected: {raised.expected}" if raised.expected else ""
        return error(about, f"{raised.seen}{expected}", advice=raised.advice, code=raised.exit_code)
    return error(about, str(raised) or type(raised).__name__)


def guarded(about: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """Whatever stands in the way of one look does not keep the doctor from the next."""
    try:
        yield from look()
    except (PflError, OSError, ValueError) as raised:
        yield of_error(about, raised)


def exit_code(found: Iterable[Check]) -> int:
    """0 unless there is an error; then the code that the programs would have ended with for the first one."""
    return next((check.code for check in found if check.level == "error"), 0)
