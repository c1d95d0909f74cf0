"""`pfl-client`: turns the command line into settings and starts the site."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pfl_client.settings import ClientSettings
from pfl_common.app import program
from pfl_common.app.config import layered, settle
from pfl_common.app.help import showing
from pfl_common.app.loading import loading
from pfl_common.app.logs import configure_from

app = program.make_app()
WaitSeconds = Annotated[
    float | None,
    typer.Option(
        help="Seconds to wait for a coordinator that is not there yet, 0 for none "
        "[60 on its own machine, 0 with --join]."
    ),
]
ValidationShare = Annotated[
    float | None,
    typer.Option(
        help="Share of the training samples to validate on, for a folder without a validation part; 0 for none "
        "[what the run says]."
    ),
]

Threads = Annotated[int | None, typer.Option(help="Most threads of the training; 0 sets no limit.")]
Nice = Annotated[int | None, typer.Option(help="Let the training step back behind other programs: 0 to 19.")]
CacheLimit = Annotated[
    str | None, typer.Option(help="Room for decoded samples in the state folder; 0: in memory.")
]

MostBad: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="The share of picture files that may be unreadable, 0 to 1; beyond it that is an error."
    ),
]
FollowLinks: TypeAlias = Annotated[
    bool | None, typer.Option("--follow-links", help="Read what links in the data folder lead to.")
]
PersonalizeOnly: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--personalize-only",
        help="Take part in no round: fetch the shared state, fit this site's own part to it, end with its model.",
    ),
]
PolicyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="Rules of what may leave this site [policy.toml in its state folder, if there is one]."
    ),
]
TellDiagnostics: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--tell-diagnostics/--no-tell-diagnostics",
        help="Tell the coordinator beside the scores what the method measures of its training.",
    ),
]


@app.command(cls=showing(ClientSettings))
def serve(
    data: Annotated[Path | None, typer.Option(help="The data folder; only read.")] = None,
    join: Annotated[Path | None, typer.Option(help="Invitation file from `pfl invite`.")] = None,
    proxy_ca: Annotated[
        str | None, typer.Option(help="Who signed a TLS-ending proxy's certificate: a file, or system.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="Which coordinator of this machine.")] = None,
    name: Annotated[
        str | None, typer.Option(help="The site's name, if not the folder's or the invited one.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Where sites keep their own state, if not in the user's state directory."),
    ] = None,
    wait: WaitSeconds = None,
    validation: ValidationShare = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = None,
    threads: Threads = None,
    nice: Nice = None,
    trainer: Annotated[str | None, typer.Option(help="warm or per-task.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="The trainer's memory: 2G, 512M.")] = None,
    cache_limit: CacheLimit = None,
    stay: Annotated[bool | None, typer.Option("--stay", help="After a run wait for the next one.")] = None,
    personalize_only: PersonalizeOnly = None,
    tell_diagnostics: TellDiagnostics = None,
    policy: PolicyFile = None,
    strict_data: Annotated[bool | None, typer.Option("--strict-data", help="Odd data is an error.")] = None,
    follow_links: FollowLinks = None,
    most_bad: MostBad = None,
    http_host: Annotated[str | None, typer.Option(help="Address of metrics and health.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Their port; 0 takes a free one.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these.")] = None,
    log_format: Annotated[
        str | None, typer.Option(help="text (auto is the same; coloured on a terminal) or json.")
    ] = None,
    version: program.Version = False,
) -> None:
    """Take part in a federation with the data of one folder, which never leaves this machine."""
    given = dict(locals())
    flags = {field.name: given[field.name] for field in fields(ClientSettings)}
    settings = settle(
        ClientSettings, layered(ClientSettings, flags, config, prefix="PFL_"), what="pfl-client"
    )
    configure_from(settings.log_format)
    raise typer.Exit(asyncio.run(_take_part(settings)))


async def _take_part(settings: ClientSettings) -> int:
    with loading():
        from pfl_client.process import Site  # grpc takes a moment: not for --help

    over = await Site(settings).serve()
    return 0 if over is None or over.status in ("finished", "stopped") else 5


def main() -> None:
    """The entry of `pfl-client`."""
    program.run("pfl-client", app)
