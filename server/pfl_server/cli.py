"""`pfl-server`: turns the command line into settings and starts the coordinator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from pfl_common.app import program
from pfl_common.app.completion import (
    among,
    complete_backbones,
    complete_from,
    complete_methods,
    complete_presets,
    complete_settings,
)
from pfl_common.app.config import dump, layered, settle
from pfl_common.app.help import showing
from pfl_common.app.library_logs import take_over
from pfl_common.app.loading import loading, look_through_all_seldom
from pfl_common.app.logs import configure_from
from pfl_common.app.rule_options import GroupedOptions, RuleOptions, Typed, flatten, taking_rules
from pfl_common.app.terminal import console
from pfl_common.errors import SettingError
from pfl_common.spec.augmentation import PRESETS
from pfl_server.settings import ServerSettings

app = program.make_app()
MethodName = Annotated[str | None, typer.Option(help="Which method trains.", autocompletion=complete_methods)]
_RUN = ("rounds", "seed", "participation", "drop", "precision", "memory_format")
PlayedRules = Annotated[Typed, RuleOptions((*_RUN, "encoding", "downlink", "validation", "keep", "patience"))]
OtherRules = Annotated[Typed, RuleOptions()]
ThreadsRule = Annotated[Typed, RuleOptions(("threads",))]
BackboneName = Annotated[
    str | None,
    typer.Option(help="Network; chosen by the data if not given.", autocompletion=complete_backbones),
]
SetPairs = Annotated[
    list[str] | None,
    typer.Option("--set", help="Method setting, name=value.", autocompletion=complete_settings),
]
PresetName = Annotated[
    str | None, typer.Option(help="A named set of the method's settings.", autocompletion=complete_presets)
]
Advertised = Annotated[
    str | None, typer.Option(help="Names under which sites reach this machine, if not the host: a,b.")
]
Listing = Annotated[
    bool, typer.Option("--list-methods", help="Print the methods; with a NAME, what each setting means.")
]
BackboneListing = Annotated[
    bool,
    typer.Option("--list-backbones", help="Print the networks, torchvision's and installed packages' too."),
]
Listed = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="With --list-methods: one method.", autocompletion=complete_methods
    ),
]
Explained = Annotated[
    str | None,
    typer.Option(
        help="Print what a method does, what it costs beside FedAvg, when to choose it. With --backbone, --set and "
        "--preset: of these.",
        autocompletion=complete_methods,
    ),
]
DurabilityName = Annotated[
    str | None,
    typer.Option(
        help="What the state survives: power or process.", autocompletion=among(ServerSettings, "durability")
    ),
]
PixelRange = Annotated[
    str | None, typer.Option(help="Raw values that become black..white: auto, LOW..HIGH, per-picture.")
]
Standardise = Annotated[
    str | None,
    typer.Option(
        help="Numbers that are no pictures: agreed over the sites, or none.",
        autocompletion=among(ServerSettings, "standardise"),
    ),
]
WeightsFrom = Annotated[
    str | None, typer.Option(help="Weights to begin from: a file, or torchvision's name for its own.")
]
WeightsLike = Annotated[
    str | None, typer.Option(help="torchvision's name of the weights that the file is like.")
]
FewestSites = Annotated[
    int | None, typer.Option(help="Sites that must tell a word or category for it to count.")
]
VocabularyFile = Annotated[str | None, typer.Option(help="File that lists the words of texts.")]
Length = Annotated[int | None, typer.Option(help="Words of a text; 0: the longest.")]
TextOptions = Annotated[
    Typed,
    GroupedOptions((("vocabulary", VocabularyFile), ("length", Length), ("fewest_sites", FewestSites))),
]
BeginFrom = Annotated[
    str | None, typer.Option(help="Begin with the models of this run, which is over: RUN below the state.")
]
FewestReporters = Annotated[
    int | None, typer.Option(help="Sites over which a mean of accuracy or loss is shown at least.")
]
SiteSeries = Annotated[
    bool | None, typer.Option("--site-metrics", help="Metrics of each site: is it here, was it counted.")
]
DisclosureOptions = Annotated[
    Typed, GroupedOptions((("fewest_reporters", FewestReporters), ("site_metrics", SiteSeries)))
]
Freeze = Annotated[str | None, typer.Option(help="Modules or tensors that stand still: encoder.stage1,head.")]
Normalise = Annotated[
    str | None,
    typer.Option(
        help="Pictures' channels by mean and deviation: none, half, imagenet, cifar100, or agreed over the sites.",
        autocompletion=among(ServerSettings, "normalise"),
    ),
]
Augment = Annotated[
    str | None,
    typer.Option(
        help="Changes of training pictures by chance: none, flip, papers, medical; a list in --config.",
        autocompletion=complete_from(tuple(PRESETS)),
    ),
]


CertificateLife = Annotated[
    str | None,
    typer.Option(help="How long certificates are good: 30d, 12h, 90m; renewed at two thirds of it."),
]
KeysPlace = Annotated[
    str | None, typer.Option(help="Private keys elsewhere: a folder, or `credentials` of a systemd unit.")
]
PassphraseFrom = Annotated[
    str | None, typer.Option(help="Lock the private keys: a file with a passphrase, or ask.")
]
EnvelopeName = Annotated[
    str | None,
    typer.Option(
        help="x25519, or hybrid: with ML-KEM-768 against quantum computers.",
        autocompletion=among(ServerSettings, "envelope"),
    ),
]
ProxiedBy = Annotated[
    str | None, typer.Option(help="Addresses of a proxy in front that ends TLS: 10.0.0.5,10.2.0.0/16.")
]


KeysAndLines = Annotated[
    Typed,
    GroupedOptions(
        (
            (
                "approve",
                Annotated[bool | None, typer.Option("--approve", help="Approve each new site by hand.")],
            ),
            ("advertise", Advertised),
            ("durability", DurabilityName),
            ("certificate_life", CertificateLife),
            ("keys", KeysPlace),
            ("passphrase", PassphraseFrom),
            ("ca_cert", Annotated[Path | None, typer.Option(help="Authority the company's own has signed.")]),
            ("ca_key", Annotated[Path | None, typer.Option(help="Its private key.")]),
            ("envelope", EnvelopeName),
            ("proxied", ProxiedBy),
        )
    ),
]


@app.command(cls=showing(ServerSettings))
@taking_rules
def serve(
    method: MethodName = None,
    sites: Annotated[int | None, typer.Option(help="Sites to wait for before the run begins.")] = None,
    rules: PlayedRules = None,
    more_rules: OtherRules = None,
    classes: Annotated[str | None, typer.Option(help="The run's classes, a,b or a file; no other.")] = None,
    shape: Annotated[str | None, typer.Option(help="Kind or shape of samples; no other.")] = None,
    texts: TextOptions = None,
    backbone: BackboneName = None,
    image_size: Annotated[int | None, typer.Option(help="Side of images; 0: the most common.")] = None,
    pixel_range: PixelRange = None,
    standardise: Standardise = None,
    normalise: Normalise = None,
    augment: Augment = None,
    encoder_projector: Annotated[bool | None, typer.Option(help="Projector behind every encoder.")] = None,
    weights: WeightsFrom = None,
    weights_like: WeightsLike = None,
    freeze: Freeze = None,
    threads: ThreadsRule = None,
    set_: SetPairs = None,
    preset: PresetName = None,
    state: Annotated[Path | None, typer.Option(help="State folder.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on for sites.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for sites; 0 takes a free one.")] = None,
    enrol_port: Annotated[int | None, typer.Option(help="Port for enrolment.")] = None,
    http_host: Annotated[str | None, typer.Option(help="Address of status page and metrics.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of status page and metrics.")] = None,
    baseline: Annotated[str | None, typer.Option(help="Finished runs to tell the gain against: a,b.")] = None,
    begin_from: BeginFrom = None,
    disclosure: DisclosureOptions = None,
    new_run: Annotated[bool | None, typer.Option("--new-run", help="Leave an unfinished run behind.")] = None,
    keys_and_lines: KeysAndLines = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text (coloured on a terminal) or json.")] = None,
    list_methods: Listing = False,
    list_backbones: BackboneListing = False,
    explain: Explained = None,
    name: Listed = None,
    as_json: Annotated[bool, typer.Option("--json", help="With a list: print JSON.")] = False,
    version: program.Version = False,
) -> None:
    """Coordinate a federation: wait for its sites, train with them, serve the result's numbers."""
    _answer_or_serve(flatten(locals()))


def _answer_or_serve(given: dict[str, Any]) -> None:
    _answer_if_asked(given)
    run_server(_read_settings(given))


def _read_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The run's settings among a command's words, with those of its file and the environment."""
    flags = {f.name: given[f.name] for f in fields(ServerSettings) if f.name in given}
    values = layered(ServerSettings, flags, given["config"], prefix="PFL_")
    return _add_method_settings(values, given["preset"], given["set_"] or ())


def _add_method_settings(values: dict[str, Any], preset: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    with loading():
        from pfl_server.run.setting_checks import add_method_settings  # torch: not for --help

    return add_method_settings(values, preset, pairs)


def _answer_if_asked(given: dict[str, Any]) -> None:
    """Words about methods are an answer, and no run."""
    name, as_json = given["name"], given["as_json"]
    if given["list_methods"]:
        show_methods(name, as_json=as_json)
        raise typer.Exit
    if given["list_backbones"] and name is None:
        show_backbones(as_json=as_json)
        raise typer.Exit
    if name is not None or as_json:
        raise SettingError(
            f"pfl-server is told {name or '--json'} without --list-methods",
            expected="options, each with two dashes before its name",
            advice="a method is named with --method NAME; what its settings mean: --list-methods NAME",
        )
    if given["explain"] is not None:
        explain_method(given["explain"], given["backbone"], given["preset"], given["set_"] or ())
        raise typer.Exit


def run_server(given: dict[str, Any]) -> None:
    """Check the settings, print what was chosen, serve until stopped."""
    settings = settle(ServerSettings, given, what="pfl-server")
    configure_from(settings.log_format)
    take_over()
    import structlog  # not before `pfl_common.app`, which keeps it small

    from pfl_server.run.setting_checks import check_words

    chosen = check_words(settings)
    log = structlog.get_logger("pfl.server")
    log.info("settings", method=settings.method, **dump(chosen))
    with loading():
        from pfl_server.process import Coordinator  # torch and grpc take a second: not for --help
    look_through_all_seldom()

    async def serve_all() -> int:
        return await Coordinator(settings).serve()

    raise typer.Exit(asyncio.run(serve_all()))


def show_methods(name: str | None, *, as_json: bool) -> None:
    """The methods there are, or what each setting of one means."""
    from pfl_server.method_help import listing

    if as_json:
        found = listing.list_all() if name is None else listing.describe(name)
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
    elif name is None:
        listing.show_all(console())
    else:
        listing.show_one(name, console())


def show_backbones(*, as_json: bool) -> None:
    """The networks a run can name."""
    from pfl_server.method_help import networks

    if as_json:
        typer.echo(json.dumps(networks.list_all(), indent=1, ensure_ascii=False))
    else:
        networks.show_all(console())


def explain_method(name: str, backbone: str | None, preset: str | None, pairs: Sequence[str]) -> None:
    """What a method does, what it costs, when to choose it."""
    from pfl_server.method_help import explanation

    chosen = _add_method_settings({"method": name}, preset, pairs).get("set", {})
    explanation.show(name, console(), networks=explanation.choose_networks(backbone), settings=chosen)


def main() -> None:
    """The entry of `pfl-server`."""
    program.run("pfl-server", app)
