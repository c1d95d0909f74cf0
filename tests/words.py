"""A program as its user types it, inside the test's process: words in, words and exit code out."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import structlog


@dataclass(frozen=True)
class Spoken:
    """What a program said until it ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All of it, in one line: where a terminal breaks lines is of no matter."""
        return " ".join((self.out + " " + self.err).split())


def speak(main: Callable[[], None], *words: str | Path) -> Spoken:
    """Run a program's `main` with these words."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    argv = mock.patch.object(sys, "argv", ["program", *map(str, words)])
    with argv, mock.patch.dict(os.environ), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            # The program's log goes to a stream that ends with this call.
            structlog.reset_defaults()
    return Spoken(code, out.getvalue(), err.getvalue())


def options_in(help_page: Spoken) -> dict[str, str]:
    """What a program's help shows as default, by option as settings are called."""
    parts = re.findall(r"--([a-z-]+)(.*?)(?= --[a-z]|$)", help_page.text)
    found = {name: re.search(r"\[default: (.*?)\]", words) for name, words in parts}
    return {name.replace("-", "_"): default[1] for name, default in found.items() if default}


def check_clear(said: Spoken, code: int, *phrases: str) -> None:
    """An error with this exit code, in words that hold these phrases, and without a traceback."""
    assert code == said.code, said
    assert "Traceback" not in said.text, said
    assert [] == [phrase for phrase in phrases if phrase not in said.text], said.text
