"""File operations that fail, or end the process, after so many of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pfl_common.files import atomic

STEPS = ("fill", "sync", "settle", "move", "remove")


class Crash(BaseException):
    """The process ends here."""


def break_after(monkeypatch: pytest.MonkeyPatch, steps: int, error: BaseException) -> Callable[[], int]:
    """Let so many file operations succeed, and none after them; gives how many were asked for."""
    asked = 0

    def wrap(name: str) -> None:
        genuine = getattr(atomic, name)

        def step(*arguments: object) -> None:
            nonlocal asked
            asked += 1
            if asked <= steps:
                genuine(*arguments)
                return
            if name == "fill":  # a torn file is worse than none
                arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
            raise error

        monkeypatch.setattr(atomic, name, step)

    for name in STEPS:
        wrap(name)
    return lambda: asked
