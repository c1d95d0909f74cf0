"""Terminal output: in colours where the terminal has them, plain elsewhere, and never a control sequence of a peer."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, TextIO

from pfl_common.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


def takes_colours(stream: TextIO) -> bool:
    """Whether colours may be written there: a terminal, not a dumb one, and nobody has said NO_COLOR."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return stream.isatty() and not plain


def console(*, stderr: bool = False) -> Console:
    """A console for a program's words and tables; where there are no colours it writes no control characters at all.

    What it is given may hold words of peers: signs that a terminal would obey are written as their numbers.
    """
    coloured = takes_colours(sys.stderr if stderr else sys.stdout)
    return _console_class()(
        stderr=stderr,
        soft_wrap=True,
        highlight=False,
        color_system="auto" if coloured else None,
        emoji=False,
        # Brackets in a peer's words are brackets.
        markup=False,
    )


@cache
def _console_class() -> type[Console]:
    from rich.console import Console  # heavy, and a daemon that runs for months hardly ever prints

    class ShowingConsole(Console):
        """Shows text, and obeys nothing that stands in it."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            """The pieces of anything printed: cells of tables come through here before they are measured."""
            for piece in super().render(renderable, options):
                # A control piece is the library's own: a live display that moves its cursor.
                yield piece if piece.control else piece._replace(text=printable(piece.text, keep="\n"))

    return ShowingConsole
