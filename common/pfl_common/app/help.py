"""Shows each option's default in `--help`, read from the settings class so that the two cannot differ."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any  # a command takes whatever typer gives it, and a default may be of any kind

from typer.core import TyperCommand, TyperOption


def showing(settings: type[Any]) -> type[TyperCommand]:
    """A kind of command for `@app.command(cls=...)`: its help says the defaults of these settings.

    The options themselves have none, so that what is not typed may still stand in a file or the environment.
    """
    plain = ((field.name.removesuffix("_"), _in_words(field.default)) for field in fields(settings))
    shown = {name: words for name, words in plain if words}

    class Showing(TyperCommand):
        """A command whose help ends each option with its default."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            for option in self.params:
                words = shown.get((option.name or "").removesuffix("_"))
                if isinstance(option, TyperOption) and words:
                    option.help = f"{option.help or ''} [default: {words}]".strip()

    return Showing


def _in_words(default: object) -> str:
    """As one would type it; nothing for what is empty, a switch or made anew each time: that the help says itself."""
    if isinstance(default, int | float) and not isinstance(default, bool):
        return f"{default:g}"
    return str(default) if isinstance(default, str | os.PathLike) else ""
