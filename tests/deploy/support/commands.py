"""What the programs understand: their options and settings, as they are declared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import typer

from pfl_client import cli as client_cli
from pfl_client.settings import ClientSettings
from pfl_server import cli as server_cli
from pfl_server.settings import ServerSettings

_APPS = {"pfl-server": server_cli.app, "pfl-client": client_cli.app}
_SETTINGS = {"pfl-server": ServerSettings, "pfl-client": ClientSettings}


def options(program: str) -> set[str]:
    """Every option of a program."""
    command = typer.main.get_command(_APPS[program])
    return {option for parameter in command.params for option in parameter.opts}


def variables(program: str) -> set[str]:
    """Every environment variable a program reads."""
    return {f"PFL_{field.name.upper()}" for field in fields(_SETTINGS[program])}


def unknown_options(program: str, words: Iterable[str]) -> set[str]:
    """The options among a command's words that the program does not have."""
    return {word.split("=")[0] for word in words if word.startswith("--")} - options(program)
