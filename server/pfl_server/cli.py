"""`pfl-server`: words to settings, then one call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import structlog
import typer
from rich.console import Console
from rich.table import Table

from pfl_common import methods, models, programs
from pfl_common.config import dump, layered, parse_pairs, settle
from pfl_common.defaults import showing
from pfl_common.errors import SettingError, nearest
from pfl_common.halves import Settings
from pfl_common.logs import configure_from
from pfl_common.run import Participation
from pfl_server.inputs import parse_range
from pfl_server.settings import ServerSettings

PixelRange: TypeAlias = Annotated[
    str | None, typer.Option(help="Raw values that become black..white: auto, LOW..HIGH, per-picture.")
]
Standardise: TypeAlias = Annotated[
    str | None, typer.Option(help="Numbers that are no pictures: agreed over the sites, or none.")
]
Advertise: TypeAlias = Annotated[
    str | None, typer.Option(help="Names under which sites reach this machine, if not the host: a,b.")
]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(cls=showing(ServerSettings))
def serve(
    method: Annotated[str | None, typer.Option(help="Which method trains.")] = None,
    sites: Annotated[int | None, typer.Option(help="Sites to wait for before the run begins.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of the run.")] = None,
    seed: Annotated[int | None, typer.Option(help="Everything drawn follows from it.")] = None,
    participation: Annotated[str | None, typer.Option(help="0.5, 0.1..1.0 or names a,b.")] = None,
    drop: Annotated[float | None, typer.Option(help="Chance that an asked site does not report.")] = None,
    candidates: Annotated[str | None, typer.Option(help="roster or present.")] = None,
    quorum: Annotated[str | None, typer.Option(help="Updates that close a round: majority or share.")] = None,
    round_seconds: Annotated[float | None, typer.Option(help="Deadline of a round.")] = None,
    lease_seconds: Annotated[float | None, typer.Option(help="Silence that loses a site its round.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Rounds between measurements.")] = None,
    largest_norm: Annotated[float | None, typer.Option(help="Largest norm of an update taken.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Network; chosen by the data if not given.")] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side of images; 0: the most common, up to 224.")
    ] = None,
    pixel_range: PixelRange = None,
    standardise: Standardise = None,
    encoder_projector: Annotated[bool | None, typer.Option(help="Projector behind every encoder.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of one trainer.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Method setting, name=value.")] = None,
    preset: Annotated[str | None, typer.Option(help="A named set of the method's settings.")] = None,
    state: Annotated[Path | None, typer.Option(help="State folder.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on for sites.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for sites; 0 takes a free one.")] = None,
    enrol_port: Annotated[int | None, typer.Option(help="Port for enrolment.")] = None,
    http_host: Annotated[str | None, typer.Option(help="Address of status page and metrics.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of status page and metrics.")] = None,
    advertise: Advertise = None,
    baseline: Annotated[str | None, typer.Option(help="Finished runs to tell the gain against: a,b.")] = None,
    new_run: Annotated[bool | None, typer.Option("--new-run", help="Leave an unfinished run behind.")] = None,
    durability: Annotated[str | None, typer.Option(help="What the state survives: power or process.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text (coloured on a terminal) or json.")] = None,
    list_methods: Annotated[bool, typer.Option("--list-methods", help="Print the methods.")] = False,
) -> None:
    """Coordinate a federation: wait for its sites, train with them, serve the result's numbers."""
    if list_methods:
        show_methods()
        raise typer.Exit()
    given = dict(locals())
    flags = {f.name: given[f.name] for f in fields(ServerSettings) if f.name in given}
    values = layered(ServerSettings, flags, config, prefix="PFL_")
    run_server(add_method_settings(values, preset, set_ or ()))


def run_server(given: dict[str, Any]) -> None:
    """Check the settings, print what was chosen, serve until stopped."""
    settings = settle(ServerSettings, given, what="pfl-server")
    configure_from(settings.log_format)
    chosen = check_words(settings)
    log = structlog.get_logger("pfl.server")
    log.info("settings", method=settings.method, **dump(chosen))
    from pfl_server.coordinator import Coordinator  # torch and grpc take a second: not for --help

    async def serve_all() -> int:
        return await Coordinator(settings).serve()

    raise typer.Exit(asyncio.run(serve_all()))


def check_words(settings: ServerSettings) -> Settings:
    """What is needed only when all sites have come is checked now; gives the method's settings."""
    Participation.parse(settings.participation)
    parse_range(settings.pixel_range)
    if settings.backbone and settings.backbone not in models.names():
        raise SettingError(
            f"there is no backbone {settings.backbone!r}", expected=nearest(settings.backbone, models.names())
        )
    return methods.load(settings.method).settle(settings.set)


def show_methods() -> None:
    """The table of methods: what each does and what can be set."""
    table = Table("method", "what it does", "settings (default)", show_lines=True)
    for name in methods.names():
        method = methods.load(name)
        title = method.doc.strip().partition("\n")[0]
        defaults = ", ".join(f"{n}={v}" for n, v in dump(method.settle({})).items())
        table.add_row(name, title, defaults)
    Console().print(table)


def add_method_settings(values: dict[str, Any], preset: str | None, pairs: Iterable[str]) -> dict[str, Any]:
    """The method's own settings, strongest first: each `--set`, the preset, the file's `[set]`."""
    chosen: dict[str, Any] = {}
    if preset is not None:
        method = methods.load(values.get("method", ServerSettings.method))
        if preset not in method.presets:
            raise SettingError(
                f"{method.name} has no preset {preset!r}", expected=nearest(preset, method.presets)
            )
        chosen = dict(method.presets[preset])
    chosen |= parse_pairs(pairs)
    # Only if there is something to add: what the file says of `set` is checked as it stands.
    return values | {"set": {**values.get("set", {}), **chosen}} if chosen else values


def main() -> None:
    """The entry of `pfl-server`."""
    programs.run("pfl-server", app)
