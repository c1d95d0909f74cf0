"""Finds the run that another is to begin from, checks that it fits, and copies what the other needs of it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch

from pfl_common import methods
from pfl_common.errors import SettingError, StateError, nearest
from pfl_common.files import atomic
from pfl_common.learning.method import Participant
from pfl_common.spec.beginning import Beginning, find_misfit
from pfl_common.spec.run import ClientId, Description, RunSpec
from pfl_common.tensors import safetensors_file
from pfl_common.tensors.state import State
from pfl_server.envelopes import Envelopes
from pfl_server.settings import ServerSettings
from pfl_server.store import beginning_files
from pfl_server.store.checkpoints import Checkpoints, read_note
from pfl_server.store.kept_weights import read_kept
from pfl_server.store.run_store import build_template
from pfl_server.store.spool import Spool

OVER = ("finished", "stopped")
MODEL_SETTINGS = (
    "backbone",
    "image_size",
    "encoder_projector",
    "pixel_range",
    "standardise",
    "normalise",
    "weights",
    "weights_like",
    "freeze",
    "fewest_sites",
    "classes",
    "shape",
    "vocabulary",
    "length",
)
"""What decides the network and its input: with another run's models these are that run's."""

log = structlog.get_logger("pfl.runs")


@dataclass(frozen=True)
class Source:
    """A run that is over, from which another can begin."""

    folder: Path
    spec: RunSpec
    committed: Mapping[int, int]
    """Its committed rounds and their attempts."""
    digest: str
    """The hash of its last checkpoint."""

    @property
    def round(self) -> int:
        """The last committed round."""
        return max(self.committed)

    @property
    def beginning(self) -> Beginning:
        """What a specification says of it."""
        return Beginning(self.spec.id, self.spec.hash, self.round, self.digest)

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot go on with this one's models."""
        pinned = spec.begins_from
        misfit = find_misfit(self.spec, spec)
        if not misfit and pinned is not None and pinned != self.beginning:
            misfit = f"after round {self.round} its state is another than that of the run which was named"
        if misfit:
            raise _does_not_fit(self.spec.id, misfit)

    def check_settings(self, settings: ServerSettings) -> None:
        """Refuse settings that ask for another method, or for a network or input that this run's models are not for."""
        if settings.method != self.spec.method:
            raise _does_not_fit(
                self.spec.id, f"its method was {self.spec.method}, asked for is {settings.method}"
            )
        asked = _read_asked(self.folder)
        usual, wanted = (json.loads(json.dumps(one.run_part())) for one in (ServerSettings(), settings))
        for name in MODEL_SETTINGS:
            if wanted[name] != usual[name] and wanted[name] != asked.get(name, usual[name]):
                option = f"--{name.replace('_', '-')}"
                raise _does_not_fit(
                    self.spec.id, f"{option} was {asked.get(name, usual[name])}, now {wanted[name]}"
                )

    def tell_changes(self, sites: Mapping[ClientId, Description]) -> None:
        """Say who is new, who is missing, and whose data are others: all of that is as it should be, next month."""
        then = self.spec.data
        changed = [s for s in sorted(sites) if then.get(s) and sites[s].data and then[s] != sites[s].data]
        new, missing = (
            sorted(sites.keys() - set(self.spec.roster)),
            sorted(set(self.spec.roster) - sites.keys()),
        )
        log.info(
            "the run begins with another one's models",
            begins_from=self.spec.id,
            after_round=self.round,
            sites_with_other_data=changed,
            new_sites=new,
            missing_sites=missing,
        )


def find_source(runs: Path, name: str) -> Source:
    """The run of this name in a state folder; it must be over, and have a state."""
    folder = runs / name
    found = _read(folder)
    if found is None or found[1] not in OVER or not found[2]:
        why = "no run is there"
        if found is not None:
            why = f"that run is {found[1]}" if found[1] not in OVER else "no round of that run was committed"
        there = sorted(path.name for path in runs.iterdir() if (one := _read(path)) and one[1] in OVER)
        raise SettingError(
            f"--begin-from {name}: {why}",
            expected=nearest(name, there) if there else f"a run in {runs} that is over",
            advice="name a run that is over; one that is under way is ended with: pfl stop",
        )
    spec, _, committed = found
    return Source(folder, spec, committed, _digest_of(folder, max(committed)))


def write(source: Source, spec: RunSpec, into: Path, envelopes: Envelopes) -> None:
    """Write into a new run's folder what it begins with, all synced: the source may be removed afterwards."""
    begun = into / beginning_files.FOLDER
    begun.mkdir(mode=0o700)
    with torch.no_grad():
        template = read_first_model(source)
    with (begun / beginning_files.FIRST_MODEL).open("wb") as out:
        safetensors_file.write(State.view(template), out)
    atomic.sync(begun / beginning_files.FIRST_MODEL)
    method = methods.load(spec.method)
    half = method.build_server(spec)
    last = _load_last(source, envelopes)
    state = method.begin(half, half.start(template, spec.seed), last)
    spool = Spool(into / "spool", spec, envelopes)
    Checkpoints(begun, spool, by=spec.digests).save(0, _take_along(source, state, spool, into / "spool"))
    phase = method.phase(method.settle(spec.settings), 1, spec.rounds)
    atomic.write(begun / beginning_files.COMMITTED, json.dumps(_list_usable(source, phase)))


def read_first_model(source: Source) -> Participant:
    """The model that every site of the source started with."""
    template = build_template(source.spec, read_kept(source.folder, source.spec))
    if source.spec.begins_from is not None:
        beginning_files.load_first_model(source.folder, template)
    return template


def _load_last(source: Source, envelopes: Envelopes) -> State:
    spool = Spool(source.folder / "spool", source.spec, envelopes)
    found = Checkpoints(source.folder / "checkpoints", spool).load(upto=source.round)
    if found is None or found[0] != source.round:
        raise StateError(
            f"the last state of run {source.spec.id} is damaged: its checkpoint of round {source.round}, or an update "
            "that it refers to",
            expected="the files as the run left them",
            advice="restore that run's folder from a backup",
        )
    return found[1]


def _take_along(source: Source, state: State, spool: Spool, folder: Path) -> State:
    """The same state, with the updates it refers to in the new run's spool, sealed as they are."""
    names = {key: f"{source.spec.id}~{kept.id.rpartition('~')[2]}" for key, kept in state.kept.items()}
    for key, kept in state.kept.items():
        for ending in (".raw", ".json"):
            shutil.copyfile(source.folder / "spool" / f"{kept.id}{ending}", folder / f"{names[key]}{ending}")
    return State(state, kept={key: spool.open(name) for key, name in names.items()})


def _list_usable(source: Source, phase: str) -> dict[int, int]:
    """Committed rounds of the phase that the new run begins in: in another phase other tensors stay at the sites."""
    method, spec = methods.load(source.spec.method), source.spec
    config = method.settle(spec.settings)
    return {
        number: attempt
        for number, attempt in source.committed.items()
        if method.phase(config, number, spec.rounds) == phase
    }


def _read(folder: Path) -> tuple[RunSpec, str, dict[int, int]] | None:
    """Specification, status and committed rounds of the run in a folder; None where there is none to be read."""
    file = folder / "journal.sqlite"
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute("select spec, status from run").fetchall()
            committed = db.execute("select round, attempt from attempt where status = 'committed'").fetchall()
        return (RunSpec.from_json(rows[0][0]), rows[0][1], dict(committed)) if rows else None
    except (sqlite3.Error, ValueError):
        return None


def _digest_of(folder: Path, number: int) -> str:
    note = folder / "checkpoints" / f"round-{number:06d}.json"
    found = read_note(note)
    if found is None:
        raise StateError(
            f"the note of the last checkpoint of run {folder.name}, {note}, cannot be read",
            expected="the file as the run left it",
            advice="restore that run's folder from a backup",
        )
    return found.digest


def _read_asked(folder: Path) -> dict[str, object]:
    try:
        said = json.loads((folder / "asked.json").read_text())
        return said if isinstance(said, dict) else {}
    except (OSError, ValueError):
        return {}


def _does_not_fit(run: str, misfit: str) -> SettingError:
    return SettingError(
        f"--begin-from {run}: {misfit}",
        expected="the method, network, classes and input of the run whose models are to go on",
        advice="ask for what that run had, or begin a run anew without --begin-from",
    )
