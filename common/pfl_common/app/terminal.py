"""Terminal output: in colours where the terminal has them, plain everywhere else."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


def takes_colours(stream: TextIO) -> bool:
    """Whether colours may be written there: a terminal, not a dumb one, and nobody has said NO_COLOR."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return stream.isatty() and not plain


def console(*, stderr: bool = False) -> Console:
    """A console for a program's words and tables; where there are no colours it writes no control characters at all."""
    from rich.console import Console  # heavy, and a daemon that runs for months hardly ever prints

    coloured = takes_colours(sys.stderr if stderr else sys.stdout)
    return Console(
        stderr=stderr, soft_wrap=True, highlight=False, color_system="auto" if coloured else None, emoji=False
    )
