"""`pfl`, the hand tool: each command reads its options and makes one call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import (
    Annotated,
    Any,
)  # a command's words are of any type until they are settled

import typer

from pfl_common.app import program
from pfl_common.app.logs import configure
from pfl_common.app.rule_options import flatten, taking_rules
from pfl_common.app.terminal import console as make_console
from pfl_common.evaluation import FEWEST_REPORTERS
from pfl_deploy.operator import cli as deciding
from pfl_deploy.prediction import cli as finished
from pfl_server.cli import (
    Augment,
    BackboneName,
    Freeze,
    MethodName,
    Normalise,
    PlayedRules,
    SetPairs,
    WeightsFrom,
    WeightsLike,
)

app = program.make_app()
console = make_console()
Server = Annotated[str | None, typer.Option(help="Which coordinator of this machine: address or id.")]
FewestShown = Annotated[
    int, typer.Option(min=1, help="Sites over which a mean is shown, without all sites' own numbers.")
]
AccAverage = Annotated[
    str | None,
    typer.Option(help="macro: every site alike; micro: all test samples together. [default: macro]"),
]
BestMode = Annotated[
    str | None,
    typer.Option(help="common_round: the best average; per_client: each site's own. [default: common_round]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Replay = Annotated[
    Path | None,
    typer.Option(help="Play this run again (pfl-state/runs/RUN): the same bytes, or an error."),
]
NewRun = Annotated[bool | None, typer.Option("--new-run", help="Train again, whatever is kept here.")]


@app.callback(invoke_without_command=True)
def begin(ctx: typer.Context, version: program.Version = False) -> None:  # noqa: ARG001  # its callback prints
    """The hand tool: invite sites, look, stop, split data, simulate, compare, report, predict."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(2)


@app.command()
def invite(
    name: Annotated[str, typer.Argument(help="The site's name.")],
    server: Server = None,
    under: Annotated[str | None, typer.Option(help="Which advertised name the site dials.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Replace an earlier invitation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write NAME.join: with it one site can join from anywhere, once."""
    from pfl_common.identity import read_join_file
    from pfl_deploy.operator import commands

    path = commands.invite(name, server=server, under=under, out=out, again=again)
    ends = read_join_file(path, now=datetime.now(UTC)).expires
    if as_json:
        console.print_json(json.dumps({"site": name, "file": str(path), "expires": ends.isoformat()}))
    else:
        console.print(f"{path}: give it to the site, which runs: pfl-client --data FOLDER --join {path.name}")
        console.print(
            f"It lets the site in once, until {ends:%Y-%m-%d %H:%M} UTC; after that: pfl invite {name} --again"
        )


@app.command()
def status(server: Server = None, as_json: AsJson = False) -> None:
    """Show the run: round, sites, accuracy."""
    from pfl_deploy.operator import commands

    if as_json:
        typer.echo(commands.status_as_json(server))
    else:
        commands.show(commands.status(server), console)


@app.command()
def stop(server: Server = None) -> None:
    """End the run in good order: every site gets its model, one that is away when it comes back."""
    from pfl_deploy.operator import commands

    console.print(f"{commands.stop(server)}; the coordinator goes on serving until it is stopped")


@app.command()
def split(
    dataset: Annotated[
        str, typer.Argument(help="digits (the six domains), mnist, fashion, cifar10 or optdigits.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write one folder per site to.")],
    domains: Annotated[
        str | None, typer.Option(help="For digits: which domains, with commas. [default: all six]")
    ] = None,
    train: Annotated[
        int | None, typer.Option(help="For digits: training images per domain. [default: 1000]")
    ] = None,
    validation_images: Annotated[
        int | None, typer.Option(help="For digits: validation images per domain. [default: 200]")
    ] = None,
    test: Annotated[
        int | None,
        typer.Option(help="For digits: test images per domain, drawn like training. [default: 500]"),
    ] = None,
    shifted: Annotated[
        int | None,
        typer.Option(help="For digits: test images drawn otherwise. [default: as many as --test]"),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="iid, pathological, dirichlet, fixed-dirichlet, two-classes. [default: dirichlet]"),
    ] = None,
    sites: Annotated[int | None, typer.Option(help="How many sites. [default: 10]")] = None,
    beta: Annotated[
        float | None, typer.Option(help="For dirichlet and fixed-dirichlet. [default: 0.1]")
    ] = None,
    classes_per_site: Annotated[int | None, typer.Option(help="For pathological. [default: 2]")] = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of each training set held back. [default: 0.0]")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Examples to take; 0 takes all. [default: 0]")] = None,
    seed: Annotated[int, typer.Option(help="The split follows from it, whatever the runs' seeds.")] = 0,
    form: Annotated[str, typer.Option(help="npz or images.")] = "npz",
    cache: Annotated[Path | None, typer.Option(help="Where fetched archives are kept.")] = None,
) -> None:
    """Make client folders from a real data set."""
    words = {name: value for name, value in locals().items() if value is not None}
    from pfl_deploy.datasets import split as splitting

    for path in splitting.split(words):
        console.print(str(path))


NewcomerFolders = Annotated[
    list[Path] | None,
    typer.Option(help="Data folder of a site that comes after the end and only fits its own part."),
]
BeginFrom = Annotated[
    str | None, typer.Option(help="Begin with the models of this run, which is over: its name in --out.")
]


@app.command()
@taking_rules
def simulate(
    data: Annotated[Path, typer.Option(help="Folder with one data folder per site.")],
    out: Annotated[Path | None, typer.Option(help="Where everything is kept.")] = None,
    replay: Replay = None,
    newcomer: NewcomerFolders = None,
    method: MethodName = None,
    rules: PlayedRules = None,
    vocabulary: Annotated[str | None, typer.Option(help="File that lists the words of texts.")] = None,
    fewest_sites: Annotated[int | None, typer.Option(help="Sites that must tell a word or category.")] = None,
    length: Annotated[int | None, typer.Option(help="Words of a text; 0: the longest.")] = None,
    backbone: BackboneName = None,
    image_size: Annotated[int | None, typer.Option(help="Side of the run's images.")] = None,
    pixel_range: Annotated[str | None, typer.Option(help="auto, LOW..HIGH or per-picture.")] = None,
    standardise: Annotated[str | None, typer.Option(help="Numbers of tables: agreed, or none.")] = None,
    normalise: Normalise = None,
    augment: Augment = None,
    encoder_projector: Annotated[bool | None, typer.Option(help="Projector behind every encoder.")] = None,
    weights: WeightsFrom = None,
    weights_like: WeightsLike = None,
    freeze: Freeze = None,
    set_: SetPairs = None,
    config: Annotated[Path | None, typer.Option(help="TOML file as for pfl-server.")] = None,
    spec: Annotated[Path | None, typer.Option(help="Run exactly this specification (spec.json).")] = None,
    begin_from: BeginFrom = None,
    new_run: NewRun = None,
    as_json: AsJson = False,
) -> None:
    """Run a whole federation in this process, without network."""
    flags = flatten(locals())
    configure(level="info" if not as_json else "warning")
    if replay is not None:
        _replay(flags)
        return
    from pfl_deploy.simulation import tables
    from pfl_deploy.simulation.previous import play_or_serve
    from pfl_deploy.simulation.simulate import find_sites

    folders, kept = find_sites(data), out or Path("pfl-simulation")
    settings, pinned = tables.server_settings(flags, folders=folders, state=kept / "coordinator")
    say, late = _say_beside(as_json), newcomer or ()
    played = play_or_serve(settings, folders, kept / "sites", pinned=pinned, newcomers=late, tell=say)
    if as_json:
        console.print_json(json.dumps({**played.to_json(), **played.result.tables()}))
    else:
        tables.show_result(played.result, console)


@app.command()
def compare(
    plan: Annotated[Path, typer.Argument(help="Comparison file (TOML).")],
    data: Annotated[Path, typer.Option(help="Folder with one data folder per site.")],
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Runs at one time.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Write the table as JSON here too.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep finished runs in this file; a comparison broken off goes on.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Draw charts into this folder, as PNG and SVG.")] = None,
    acc_average: AccAverage = None,
    best_mode: BestMode = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods: settings chosen on validation data, several seeds, differences with intervals."""
    from pfl_deploy.comparison.compare import Asked
    from pfl_deploy.comparison.compare import compare as play
    from pfl_deploy.comparison.markdown import as_markdown

    configure(level="warning")
    # What is said on the way goes to the other stream where the result is for a program.
    said = make_console(stderr=True) if as_json else console
    found = play(Asked(plan, data, jobs, out, keep, plots, acc_average, best_mode), said)
    told = json.dumps(found.to_json(), indent=1, sort_keys=True)
    if out is not None:
        out.write_text(told + "\n")
    if as_json:
        console.print_json(told)
    else:
        console.print(as_markdown(found), markup=False)


@app.command()
def demo(
    rounds: Annotated[int, typer.Option(min=1, max=999_999, help="Rounds of every run.")] = 40,
    out: Annotated[Path | None, typer.Option(help="New folder to write to; else a temporary one.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with one data folder per site, if not the sample.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep keys, vaults and models too.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Train DualFed with real processes on four digit domains, beside its yardsticks; write a report."""
    from pfl_deploy.demo.make import play
    from pfl_deploy.demo.plan import SAMPLE, Plan, choose_folder

    plan = Plan((data or SAMPLE).resolve(), choose_folder(out), rounds, keep)
    play(plan, console)
    if open_:
        typer.launch(plan.report.as_uri())


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="A run's folder, its id, or the folder of a simulation.")],
    sites: Annotated[
        list[Path] | None, typer.Option(help="Folder of one or more sites: for each site's own numbers.")
    ] = None,
    beside: Annotated[list[str] | None, typer.Option(help="Another run to compare with.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; else report-RUN here.")] = None,
    target: Annotated[
        list[float] | None, typer.Option(help="Mean accuracy to reach, as 0.9; else shares of the best.")
    ] = None,
    acc_average: AccAverage = None,
    best_mode: BestMode = None,
    fewest_reporters: FewestShown = FEWEST_REPORTERS,
    pictures: Annotated[bool, typer.Option(help="Write the charts as PNG files too.")] = True,
    as_json: AsJson = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Write one page about a run, under way or over: accuracy, fairness, bytes, time, losses."""
    from pfl_deploy.report.averages import Reading
    from pfl_deploy.report.make import Asked, make_report

    reading = Reading.of(acc_average, best_mode)
    folders, others, targets = tuple(sites or ()), tuple(beside or ()), tuple(target or ())
    asked = Asked(run, folders, others, targets, pictures, fewest_reporters, reading)
    written = make_report(asked, out)
    if as_json:
        console.print_json(json.dumps(written.facts))
    else:
        console.print(f"the report: {written.page}", markup=False)
    if open_:
        typer.launch(written.page.as_uri())


@app.command()
def doctor(
    thing: Annotated[
        Path | None,
        typer.Argument(help="A data folder, an invitation, a state folder: look at this first."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Look through this data folder too.")] = None,
    join: Annotated[Path | None, typer.Option(help="Try this invitation's addresses too.")] = None,
    server: Server = None,
    state: Annotated[Path | None, typer.Option(help="Where sites keep their state, if elsewhere.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong here and what to do: data, invitation, machine, coordinators, sites."""
    from pfl_deploy.doctor import examination

    asked = examination.Asked(data, join, server, state, thing)
    raise typer.Exit(examination.report(asked, console, as_json=as_json))


@app.command()
def audit(
    site: Annotated[str | None, typer.Argument(help="One site; else all there are.")] = None,
    run: Annotated[str | None, typer.Argument(help="What left for one run.")] = None,
    sites: Annotated[
        Path | None,
        typer.Option(
            "--sites", "--state", help="Where sites keep their state, if not in the user's state directory."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the list's chain and the coordinator's receipts.")
    ] = False,
    each: Annotated[
        bool, typer.Option("--all", help="Each message, not only sums; so too when SITE and RUN are named.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what left a site, summed by run and kind: what was said at joining, scores, updates."""
    from pfl_deploy.operator import audit as auditing

    listed = auditing.read(sites, site, run, verify=verify)
    if as_json:
        console.print_json(json.dumps(auditing.as_plain(listed)))
    else:
        auditing.show(listed, console, each=each or run is not None)
    auditing.check(listed)


app.command()(deciding.remove)
app.command()(deciding.revoke)
app.command()(deciding.approve)
app.command()(deciding.deny)
app.command("rotate-ca")(deciding.rotate_ca)
app.command()(finished.predict)
app.command()(finished.evaluate)
app.command()(finished.export)


def _say_beside(as_json: bool) -> Callable[[str], None]:  # the command's own word
    """Where words beside the result go: not among JSON."""
    said = make_console(stderr=True) if as_json else console
    return lambda words: said.print(words, markup=False)


def _replay(flags: Mapping[str, Any]) -> None:
    from pfl_deploy.simulation import replay as replaying

    replaying.check_words(flags)
    found = replaying.replay_kept(flags["replay"], flags["data"], flags["out"])
    if flags["as_json"]:
        console.print_json(json.dumps(asdict(found)))
    else:
        console.print(
            f"run {found.run} played again: the same bytes after round {found.round} (SHA-256 {found.sha256})"
        )


def main() -> None:
    """The entry of `pfl`."""
    program.run("pfl", app)
