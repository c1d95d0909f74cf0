"""Replays a real run from its folder: the same sites counted in the same rounds must end in the same bytes.

    Recording    what the run's journal says: its specification, its committed rounds, what each site began from
    Screenplay   the recording as the run's script: it replaces chance and presence
    replay       plays it in this process and compares the last checkpoint

The run's own folder is only read, also while a coordinator is serving it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any  # a command's words are of any type until they are settled

from pydantic import TypeAdapter

from pfl_common.errors import DataError, RunFailed, SettingError, StateError
from pfl_common.identity import site_name
from pfl_common.spec.rules import ALL
from pfl_common.spec.run import ClientId, RunSpec
from pfl_deploy.operator.status_text import tell_names
from pfl_deploy.simulation.recording import Copy, find_difference, take_copy
from pfl_deploy.simulation.simulate import end, find_sites, open_host, play
from pfl_server.decisions.sampling import Draw
from pfl_server.run.specification import versions
from pfl_server.settings import ServerSettings
from pfl_server.store import kept_weights
from pfl_server.store.journal import Journal

PATIENCE_SECONDS = 2_592_000.0
"""30 days, the most a site takes of a specification: sites take turns here, which no usual deadline allows for."""

OWN_WORDS = ("replay", "data", "out", "as_json")


@dataclass(frozen=True)
class Played:
    """An attempt at a round, as the journal records it."""

    round: int
    attempt: int
    status: str
    candidates: tuple[ClientId, ...]
    cohort: tuple[ClientId, ...]
    counted: tuple[ClientId, ...]
    losses: dict[ClientId, str]


_ATTEMPTS: TypeAdapter[tuple[Played, ...]] = TypeAdapter(tuple[Played, ...])


@dataclass(frozen=True)
class Recording:
    """The committed rounds of a run's journal. Abandoned attempts are left out: they left no trace in any state."""

    spec: RunSpec
    rounds: Mapping[int, Played]
    began: Mapping[ClientId, Sequence[tuple[int, int]]]
    """By site, in order: a round in which it was heard, and the last committed round its vault held then."""
    fallbacks: Mapping[int, int] = field(default_factory=dict)
    """Rounds that began from an older state than that of the round before, and after which round it stood."""

    @classmethod
    def of(cls, journal: Journal, checkpoints: Collection[int]) -> Recording:
        """A journal's rounds up to the last committed one that has a checkpoint."""
        text, attempts = journal.spec(), _ATTEMPTS.validate_python(journal.rounds())
        committed = {played.round: played for played in attempts if played.status == "committed"}
        last = max(committed.keys() & set(checkpoints), default=0)
        if text is None or not last:
            raise StateError(
                f"the run has {len(committed)} committed rounds and no whole checkpoint of any",
                expected="a run with a committed round, and its last checkpoint undamaged",
                advice="wait until the run is further, or bring its folder back from a copy",
            )
        rounds = {number: played for number, played in committed.items() if number <= last}
        return cls(RunSpec.from_json(text), rounds, _by_site(journal.handed()), journal.fallbacks())

    @property
    def last(self) -> int:
        """The last committed round."""
        return max(self.rounds)

    def trained(self, site: ClientId, number: int) -> bool:
        """Whether a site of a round's cohort trained in it and kept that, counted or not."""
        played = self.rounds[number]
        if site in played.counted:
            return True
        reason = played.losses.get(site, "")
        # A killed or unreachable site cannot say whether it had trained: what it began its next task from does.
        return (
            reason == "dropped" or reason.startswith("refused:") or self._next_since(site, number) >= number
        )

    def draw(self, number: int, here: Collection[ClientId]) -> Draw:
        """Who trains: the counted, and as drop-outs those of the others that trained; who was absent stays so."""
        played = self.rounds[number]
        lost = {s for s in played.cohort if s in here and s not in played.counted and self.trained(s, number)}
        return Draw(tuple(sorted({*played.counted, *lost})), frozenset(lost))

    def check(self) -> None:
        """A run that cannot be played again, and why: a site's state of another run, or one that was exchanged."""
        if self.spec.begins_from is not None:
            raise StateError(
                f"run {self.spec.id} begins with the sites' own state of run {self.spec.begins_from.run}",
                expected="a run that begins with first values: a replay has nothing of its sites but their data",
                advice="replay the run that it begins from; this one can be looked at, not played again",
            )
        self._check_kept()

    def _check_kept(self) -> None:
        """A site whose state folder was exchanged or emptied in mid-run cannot be played again."""
        for site, beginnings in self.began.items():
            taken = [n for n, played in sorted(self.rounds.items()) if site in played.cohort]
            done = [0, *(number for number in taken if self.trained(site, number))]
            for number, since in beginnings:
                kept = done[bisect_left(done, number, lo=1) - 1]
                if since < kept:
                    raise StateError(
                        f"{site} began round {number} with its state of round {since}, not of round {kept}",
                        expected="sites that kept their state folders: a replay cannot know what was put there",
                        advice="nothing to mend: this run can be looked at, not played again",
                    )

    def _next_since(self, site: ClientId, number: int) -> int:
        beginnings = self.began.get(site, ())
        place = bisect_left(beginnings, (number + 1, 0))
        return beginnings[place][1] if place < len(beginnings) else 0


class Screenplay:
    """A recording as a script for a run; `end` is called in its last round."""

    def __init__(self, recording: Recording, here: Collection[ClientId]) -> None:
        self._recording, self._here = recording, here
        self.end: Callable[[], None] = lambda: None

    def draw(self, number: int) -> tuple[tuple[ClientId, ...], Draw]:
        """The candidates and the cohort of a round."""
        if number >= self._recording.last:
            # A run that was stopped, or that is still going, has fewer rounds than its specification.
            self.end()
        return self._recording.rounds[number].candidates, self._recording.draw(number, self._here)

    def after(self, number: int) -> int:
        """After which round the state stood that a round began from."""
        return self._recording.fallbacks.get(number, number - 1)


@dataclass(frozen=True)
class Same:
    """The result of a replay that ended in the run's own bytes, those of its checkpoint after this round."""

    run: str
    round: int
    sha256: str


def check_words(flags: Mapping[str, Any]) -> None:
    """A replay takes everything from the run: any other word of the command would be ignored."""
    given = sorted(name for name, value in flags.items() if value is not None and name not in OWN_WORDS)
    if given:
        words = ", ".join(f"--{name.strip('_').replace('_', '-')}" for name in given)
        raise SettingError(
            f"--replay with {words}",
            expected="--data, --out and --json alone: the rest is as the run had it",
            advice="leave the others out",
        )


def replay_kept(run: Path, data: Path, out: Path | None) -> Same:
    """Play a run again with the sites below a folder, in a folder to keep or in one that goes."""
    folders = find_sites(data)
    if out is not None:
        return replay(run, folders, out)
    with TemporaryDirectory(prefix="pfl-replay-") as state:
        return replay(run, folders, Path(state))


def replay(run: Path, folders: Sequence[Path], state: Path) -> Same:
    """Play a run again with its sites' data folders and compare the last checkpoint; all it keeps is in `state`."""
    _make_folder(state)
    copy = take_copy(run, state)
    with closing(Journal(copy.journal)) as journal:
        recording, known = Recording.of(journal, copy.checkpoints), journal.sites()
    recording.check()
    sites = {name: folder for folder in folders if (name := site_name(folder)) in known}
    _check_any_here(recording, sites, folders)
    _check_all_here(recording, sites)
    again = _play(recording, sites, state, weights=run / kept_weights.NAME)
    _check_counted(recording, again / "journal.sqlite")
    return _compare(recording, copy, again / "checkpoints")


def _make_folder(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        used = any(state.iterdir())
    except OSError as error:
        raise StateError(
            f"the folder {state} cannot be made: {error.strerror}", advice="name another with --out"
        ) from None
    if used:
        raise StateError(
            f"{state} is not empty", expected="a new folder for the replay", advice="name another with --out"
        )


def _play(recording: Recording, sites: Mapping[ClientId, Path], state: Path, *, weights: Path) -> Path:
    spec = recording.spec
    begun = str(weights) if spec.weights else ""
    # Who was lost is written already: nobody is given up here because this machine is slower.
    patient = replace(spec, quorum=ALL, round_seconds=PATIENCE_SECONDS, patience=0, change_factor=0.0)
    settings = ServerSettings(
        method=spec.method, sites=len(sites), state=state / "coordinator", weights=begun
    )
    script = Screenplay(recording, sites)
    host = open_host(settings, pinned=patient, script=script)
    script.end = host.stop
    return end(host, play(host, list(sites.values()), state / "sites")).coordinator


def _check_any_here(recording: Recording, sites: Collection[ClientId], folders: Sequence[Path]) -> None:
    if not sites:
        wanted = {site for played in recording.rounds.values() for site in played.counted}
        raise DataError(
            f"no folder below --data is called after a site of run {recording.spec.id}; "
            f"there are: {tell_names([folder.name for folder in folders])}",
            expected=f"a folder of data for each of {tell_names(sorted(wanted))}, called so",
            advice="name the folder that holds them with --data",
        )


def _check_all_here(recording: Recording, sites: Collection[ClientId]) -> None:
    for number, played in sorted(recording.rounds.items()):
        if missing := [site for site in played.counted if site not in sites]:
            raise DataError(
                f"{', '.join(missing)} was counted in round {number} and has no folder below --data",
                expected="the data folder of every site that was ever counted, called after the site",
                advice="bring it there, or name the folder that holds it",
            )


def _check_counted(recording: Recording, book: Path) -> None:
    """That nobody was lost here who was not lost then: or the difference would only be seen, not explained."""
    with closing(Journal(book)) as journal:
        rows = {row.round: row for row in _ATTEMPTS.validate_python(journal.rounds())}
    for number, played in recording.rounds.items():
        lost = {site: reason for site, reason in rows[number].losses.items() if reason != "dropped"}
        if lost or rows[number].counted != played.counted:
            words = ", ".join(f"{site} ({reason})" for site, reason in sorted(lost.items()))
            raise RunFailed(
                f"round {number} could not be played as it was: lost here: {words or 'none'}\n"
                f"  expected: the updates of {', '.join(played.counted) or 'nobody'} and no other\n"
                "  what to do: see above what these sites said; their data may not be what they were"
            )


def _compare(recording: Recording, copy: Copy, checkpoints: Path) -> Same:
    spec, number = recording.spec, recording.last
    again = checkpoints / f"round-{number:06d}.safetensors"
    found = find_difference(copy.checkpoints[number], again)
    if found is None:
        return Same(spec.id, number, _digest(again))
    other = [
        f"{name} was {spec.versions.get(name, 'unknown')} and is {now} here"
        for name, now in sorted(versions(spec.model.backbone).items())
        if spec.versions.get(name) != now
    ]
    threads = [] if spec.threads == 1 else [f"the run used {spec.threads} threads"]
    halves = [] if spec.precision == "float32" else [f"the run computed in {spec.precision}"]
    raise RunFailed(
        f"run {spec.id} played again does not end in the same bytes after round {number}: {found}\n"
        "  expected: the same specification, data and counted sites end in the same bytes\n"
        f"  what to do: {'; '.join(other + threads + halves) or 'see whether a data folder has changed since the run'}"
    )


def _by_site(answers: Mapping[str, Mapping[ClientId, int]]) -> dict[ClientId, list[tuple[int, int]]]:
    """A journal's answers by site and in order; FINISH comes after the round it is named after."""
    found: dict[ClientId, list[tuple[int, int]]] = {}
    for key, sites in sorted(answers.items()):
        number, _, kind = key.split("-")
        for site, since in sites.items():
            found.setdefault(site, []).append((int(number) + (kind == "finish"), since))
    return {site: sorted(beginnings) for site, beginnings in found.items()}


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
