"""A whole federation inside one process: the real coordinator and daemons, without network or trainer processes.

Only the line, the trainer's process and the envelopes are replaced (see `loopback`), so a run here and a run over the
network of one specification end in the same bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any  # a setting may be of any type

import structlog

from pfl_client.daemon.loop import Daemon
from pfl_client.daemon.newcomer import Newcomer
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError, Refused, SettingError
from pfl_common.identity import site_name
from pfl_common.spec.messages import Scores
from pfl_common.spec.rules import ALL
from pfl_common.spec.run import ClientId, RunSpec
from pfl_deploy.simulation.loopback import LoopbackBench, LoopbackLink, OpenEnvelopes
from pfl_server.run.attempt import Script
from pfl_server.run.host import RunHost
from pfl_server.settings import ServerSettings
from pfl_server.sites.notices import UNFIT

WAITING: dict[str, Any] = {"quorum": ALL}
"""In one process nobody is ever away, only slow: a busy machine must not change who is counted."""


@dataclass(frozen=True)
class Curve:
    """A site's own measurements, as (task, accuracy by measure)."""

    site: ClientId
    points: tuple[tuple[str, dict[str, float]], ...]

    def last(self, measure: str) -> float:
        """The newest value of one measure."""
        return next(values[measure] for _, values in reversed(self.points) if measure in values)


@dataclass(frozen=True)
class Result:
    """The end of a simulated federation."""

    spec: RunSpec
    coordinator: Path
    sites: dict[ClientId, Path]
    scores: dict[str, Scores]
    newcomers: dict[ClientId, Path] = field(default_factory=dict)
    """Run folders of sites that came after the end."""

    def curves(self) -> dict[ClientId, Curve]:
        """Each site's own curve: a simulation owns the sites, a coordinator never sees these."""
        return {site: read_curve(site, folder / "history.jsonl") for site, folder in self.sites.items()}

    def tables(self) -> dict[str, dict[ClientId, dict[str, float]]]:
        """What each site measured last, and each newcomer: as the state came (pre), and fitted to it (post)."""
        table = {"accuracy": {site: dict(curve.points[-1][1]) for site, curve in self.curves().items()}}
        late = {site: read_curve(site, run / "history.jsonl") for site, run in self.newcomers.items()}
        return table | ({"newcomers": {s: dict(c.points[-1][1]) for s, c in late.items()}} if late else {})


def simulate(  # noqa: PLR0913  # how the sites read their data, each with a default
    settings: ServerSettings,
    folders: Sequence[Path],
    state: Path,
    *,
    pinned: RunSpec | None = None,
    hold_out: float = 0.0,
    blind: bool = False,
    newcomers: Sequence[Path] = (),
) -> Result:
    """Play a federation of these data folders; everything it keeps lies below `state`. Newcomers are sites that come
    after its end and only fit their own part.
    """
    host = open_host(settings, pinned=pinned)
    return asyncio.run(play(host, folders, state, hold_out=hold_out, blind=blind, newcomers=newcomers))


def open_host(
    settings: ServerSettings, *, pinned: RunSpec | None = None, script: Script | None = None
) -> RunHost:
    """The coordinator of a federation inside one process. Whoever plays it owns the sites: every mean is shown."""
    return RunHost(
        replace(settings, fewest_reporters=1), OpenEnvelopes(), pinned=pinned, script=script, all_here=True
    )


async def play(  # noqa: PLR0913  # how the sites read their data, each with a default
    host: RunHost,
    folders: Sequence[Path],
    state: Path,
    *,
    hold_out: float = 0.0,
    blind: bool = False,
    newcomers: Sequence[Path] = (),
) -> Result:
    """Bring these data folders to a coordinator, let its run end, and let newcomers fetch what it ended with."""
    turn = asyncio.Lock()
    try:
        sites, others = _part(folders, newcomers)
        daemons = [
            Daemon(
                DataFolder(folder, site, device="cpu", hold_out=hold_out, blind=blind),
                link=LoopbackLink(site, host),
                bench=LoopbackBench(turn),
                envelopes=OpenEnvelopes(),
                state=state / site,
            )
            for site, folder in sites.items()
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(host.run())
            for daemon, (site, folder) in zip(daemons, sites.items(), strict=True):
                group.create_task(_run(daemon, site, folder))
        for site, folder in others.items():
            data = DataFolder(folder, site, device="cpu", hold_out=hold_out, blind=blind)
            await _run(_meet(data, host, turn, state / site), site, folder)
    except ExceptionGroup as several:
        # The first failure ended the others: it is the one to tell.
        raise several.exceptions[0] from None
    finally:
        host.runs.close()
    assert host.books is not None
    spec, scores = host.books.spec, host.books.journal.scores()
    host.books.journal.close()
    return Result(
        spec,
        host.settings.state / "runs" / spec.id,
        {site: state / site / "runs" / spec.id for site in sites},
        scores,
        {site: state / site / "runs" / spec.id for site in others},
    )


def _part(
    folders: Sequence[Path], newcomers: Sequence[Path]
) -> tuple[dict[ClientId, Path], dict[ClientId, Path]]:
    """The sites of the run and those that come after it; all must have names of their own."""
    every = name_sites([*folders, *newcomers])
    return {s: f for s, f in every.items() if f in folders}, {
        s: f for s, f in every.items() if f not in folders
    }


def _meet(data: DataFolder, host: RunHost, turn: asyncio.Lock, state: Path) -> Newcomer:
    """A site that comes after the end."""
    link, bench = LoopbackLink(data.site, host), LoopbackBench(turn)
    return Newcomer(data, link=link, bench=bench, envelopes=OpenEnvelopes(), state=state)


async def _run(daemon: Daemon | Newcomer, site: ClientId, folder: Path) -> None:
    """One of many sites in one log: what is said here, and in the threads that work for it, says which one. A site that
    is not taken ends the simulation: without it the result would be another one.
    """
    structlog.contextvars.bind_contextvars(site=site)
    try:
        await daemon.run()
    except Refused as refused:
        if refused.code not in UNFIT:
            raise
        raise DataError(
            f"the data of {folder} do not fit the others: {refused.words}",
            advice="mend the folder, or take it away: a simulation leaves no site out by itself",
        ) from None


def read_curve(site: ClientId, history: Path) -> Curve:
    """A site's history as it wrote it; a task done twice counts once, with what it said last."""
    points: dict[str, dict[str, float]] = {}
    for line in history.read_text().splitlines():
        entry = json.loads(line)
        points[entry["task"]] = {name: values["accuracy"] for name, values in entry["scores"].items()}
    return Curve(site, tuple(points.items()))


def find_sites(folder: Path) -> list[Path]:
    """The data folders below a folder, by name."""
    found = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if not found:
        raise DataError(
            f"{folder} holds no data folders",
            expected="one folder per site, as `pfl split` makes them",
            advice="name the folder above the sites' folders",
        )
    return found


def name_sites(folders: Sequence[Path]) -> dict[ClientId, Path]:
    """The data folders by the names their sites have, which must differ."""
    sites: dict[ClientId, Path] = {}
    for folder in folders:
        name = site_name(folder)
        if name in sites:
            raise SettingError(
                f"two data folders are named {name!r}: {sites[name]} and {folder}",
                expected="one name per site",
                advice="rename one of the folders",
            )
        same = next((other for other in sites.values() if other.samefile(folder)), None)
        if same is not None:
            raise SettingError(
                f"{same} and {folder} are the same data folder",
                expected="data of its own for each site",
                advice="remove one of the two links, or copy the data if two sites are to have the same",
            )
        sites[name] = folder
    return dict(sorted(sites.items()))
