"""The outer edge of all commands: an error that a person can mend becomes a message and an exit code."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Annotated, TypeAlias

import typer

from pfl_common import exit_codes
from pfl_common.app.allocator import keep_frames_warm
from pfl_common.app.usage_errors import WrongUsage, words_of
from pfl_common.errors import PflError
from pfl_common.printable import set_in


def tell_version(program: str) -> str:
    """The installed versions, in one line; torch is only looked up, not loaded."""
    with suppress(PackageNotFoundError):
        python = f"Python {platform.python_version()}"
        return f"{program} {version('pfl-net')} (torch {version('torch')}, {python}, {platform.system()})"
    return f"{program} (not installed as a package)"


def _show_version(ctx: typer.Context, asked: bool) -> None:
    if asked:
        typer.echo(tell_version(str(ctx.find_root().info_name)))
        raise typer.Exit


Version: TypeAlias = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
]
"""An option that every program has."""


def make_app() -> typer.Typer:
    """A program or a group of commands: `-h` is `--help`, errors are ours, shells may complete."""
    settings = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, context_settings=settings)


def show_fault(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of a fault of ours. Its last line may repeat a peer's words."""
    sys.stderr.write(set_in("".join(traceback.format_exception(kind, fault, trace))) + "\n")


def run(program: str, command: typer.Typer) -> None:
    """Run a command; a wrong word, or what it raises on purpose, is printed without a traceback."""
    # What gRPC prints on its own says nothing our log does not. It reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Nor are other packages to look for that torch would load as its devices: none of them can be asked for here.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    keep_frames_warm()
    try:
        code = command(standalone_mode=False, prog_name=program)
    except WrongUsage as wrong:
        error: PflError = words_of(wrong, program)
    except typer.Abort:
        raise SystemExit(exit_codes.INTERRUPTED) from None
    except PflError as raised:
        error = raised
    except Exception:
        # Set last: the library for command lines has set one of its own.
        sys.excepthook = show_fault
        raise
    else:
        # Left early with a code of its own; what a command returns is no code.
        raise SystemExit(code if isinstance(code, int) else exit_codes.DONE)
    # Loaded for words that are hardly ever said: it weighs megabytes in a daemon that runs for months.
    from pfl_common.app.terminal import console

    console(stderr=True).print(set_in(f"{program}: {error}"))
    # Standard error may go to a log file, which other people read: names of data files are for a terminal.
    if sys.stderr.isatty() and (file := getattr(error, "file", "")):
        console(stderr=True).print(f"  the file: {file}")
    raise SystemExit(getattr(error, "exit_code", exit_codes.FAULT)) from None
