"""What all commands have in common at their outer edge: an error a person can mend is words and an exit code."""

from __future__ import annotations

import os
from collections.abc import Callable

from rich.console import Console

from pfl_common.errors import PflError


def run(program: str, command: Callable[[], None]) -> None:
    """Run a command; what it raises on purpose is printed without a traceback."""
    # What gRPC prints on its own says nothing our log does not. It reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        command()
    except PflError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"{program}: {error}", markup=False)
        raise SystemExit(getattr(error, "exit_code", 1)) from None
