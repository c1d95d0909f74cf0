"""A program's help says what it takes where nothing is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from pfl_common.app.help import showing


@dataclass(frozen=True)
class Settings:
    """One setting of each kind."""

    count: int = 30
    share: float = 3600.0
    largest: float = 1e9
    state: Path = Path("here")
    mode: str = "warm"
    lambda_: float = 0.5
    none_yet: str = ""
    nowhere: Path | None = None
    switch: bool = False
    words: dict[str, str] = field(default_factory=dict)


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=showing(Settings))
def serve(
    count: Annotated[int | None, typer.Option(help="How many.")] = None,
    share: Annotated[float | None, typer.Option()] = None,
    largest: Annotated[float | None, typer.Option(help="How large.")] = None,
    state: Annotated[Path | None, typer.Option(help="Where.")] = None,
    mode: Annotated[str | None, typer.Option(help="How.")] = None,
    lambda_: Annotated[float | None, typer.Option("--lambda", help="How far.")] = None,
    none_yet: Annotated[str | None, typer.Option(help="Chosen if not given.")] = None,
    nowhere: Annotated[Path | None, typer.Option(help="Not needed.")] = None,
    switch: Annotated[bool | None, typer.Option("--switch", help="On.")] = None,
    words: Annotated[list[str] | None, typer.Option(help="Many.")] = None,
    other: Annotated[int | None, typer.Option(help="No setting.")] = None,
) -> None:
    """Say what came."""
    typer.echo(str(count))


def test_each_default_stands_behind_its_option() -> None:
    """Numbers as one types them; nothing behind what is empty, off, a table, or no setting."""
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    told = {line.split()[0]: line.split("  ")[-1].strip() for line in lines if line.strip().startswith("--")}
    assert {
        "--count": "How many. [default: 30]",
        "--share": "[default: 3600]",
        "--largest": "How large. [default: 1e+09]",
        "--state": "Where. [default: here]",
        "--mode": "How. [default: warm]",
        "--lambda": "How far. [default: 0.5]",
        "--none-yet": "Chosen if not given.",
        "--nowhere": "Not needed.",
        "--switch": "On.",
        "--words": "Many.",
        "--other": "No setting.",
        "--help": "Show this message and exit.",
    } == told


def test_what_is_shown_is_not_given() -> None:
    """An option that nobody names stays unnamed: a file or the environment may say it."""
    assert "None" == CliRunner().invoke(app, []).output.strip()
