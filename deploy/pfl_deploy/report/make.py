"""THE STORY of a report: find the run, read it and those beside it, write page, numbers and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time

from pfl_common.errors import SettingError, StateError
from pfl_common.evaluation import FEWEST_REPORTERS
from pfl_common.spec.run import Json
from pfl_deploy.report import facts as telling
from pfl_deploy.report.averages import Reading
from pfl_deploy.report.facts import Facts, Told
from pfl_deploy.report.few_reporters import hide_few, tell_hidden
from pfl_deploy.report.find_run import Place, find_run
from pfl_deploy.report.page.page import render
from pfl_deploy.report.plain_runs import PLAIN, find_plain_runs, is_of_same_sites
from pfl_deploy.report.sources.coordinator import Record, read_record, subject_of
from pfl_deploy.report.sources.sites import check_place, find_histories
from pfl_server.store.comparable import find_differences

MOST_BESIDE = 6
"""As many as there are colours for."""


@dataclass(frozen=True)
class Asked:
    """A request for a report."""

    run: str
    sites: tuple[Path, ...] = ()
    beside: tuple[str, ...] = ()
    targets: tuple[float, ...] = ()
    pictures: bool = True
    fewest: int = FEWEST_REPORTERS
    """Sites over which a mean is shown at least, where not all sites' own histories are at hand."""
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class Written:
    """A written report: its location and its content."""

    page: Path
    numbers: Path
    pictures: tuple[Path, ...]
    facts: dict[str, Json]


def make_report(asked: Asked, out: Path | None = None) -> Written:
    """Read, and write one page with its numbers and pictures beside it."""
    # Before anything is read: a user without a drawing library is told at once.
    draw = _find_pen() if asked.pictures else None
    facts = gather(asked)
    folder = _open_folder(out or Path(f"report-{facts.run.record.spec.id}"))
    told = telling.to_json(facts)
    written = Written(folder / "report.html", folder / "report.json", (), told)
    written.page.write_text(render(facts), encoding="utf-8")
    written.numbers.write_text(
        json.dumps(told, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8"
    )
    return written if draw is None else replace(written, pictures=draw(facts, folder))


def _find_pen() -> Callable[[Facts, Path], tuple[Path, ...]]:
    from pfl_deploy.report.charts import png as pictures

    return pictures.draw


def gather(asked: Asked) -> Facts:
    """Everything the page tells."""
    for target in asked.targets:
        if not 0 < target <= 1:
            raise SettingError(
                f"--target is {target:g}", expected="an accuracy above 0 and at most 1, as 0.9"
            )
    place = find_run(asked.run)
    run, whole = _tell(place, asked, "run"), read_record(place.run)
    if asked.reading.best_mode == "per_client" and run.best is None and any(whole.scores.values()):
        raise SettingError(
            "--best-mode per_client needs the history of each site; some are not known",
            expected="the folders of all sites of the run, by --sites",
            advice="leave --best-mode out for the round with the best average, which needs only sums",
        )
    beside = _beside(place, run.record, asked)
    for folder in asked.sites:
        check_place(folder, [told.record.spec for told in (run, *beside)], run.record.sites)
    facts = Facts(run, beside, telling.choose_targets(run, asked.targets), time())
    hidden = tell_hidden(whole, run.record, asked.fewest)
    return replace(facts, missing=(*_missing(facts), *hidden))


def _tell(place: Place, asked: Asked, kind: str) -> Told:
    record = read_record(place.run)
    places = (*asked.sites, *place.sites)
    histories = find_histories(places, record.spec.id, record.spec.hash)
    return telling.tell(hide_few(record, histories, asked.fewest), histories, kind, asked.reading)


def _beside(place: Place, record: Record, asked: Asked) -> tuple[Told, ...]:
    """Those named, then plain methods' runs of the same state folder that nobody named."""
    named = [find_run(word) for word in asked.beside]
    if len(named) > MOST_BESIDE:
        raise SettingError(f"{len(named)} runs beside this one", expected=f"at most {MOST_BESIDE}")
    taken = [_tell(other, asked, "") for other in named if other.run != place.run]
    for told in taken:
        if not is_of_same_sites(told.record.spec, record.spec):
            raise SettingError(
                f"run {told.record.spec.id} cannot stand beside {record.spec.id}",
                expected="a run of the same sites, with data of the same shape and classes",
            )
    known = {told.record.spec.method for told in taken} | {record.spec.method}
    for method, folder in find_plain_runs(place, subject_of(record)).items():
        if method not in known and len(taken) < MOST_BESIDE:
            taken.append(_tell(Place(folder, place.sites), asked, ""))
    return tuple(_coloured(taken, record))


def _coloured(taken: Sequence[Told], record: Record) -> list[Told]:
    """The first run of a plain method has its colour; all others take what is left."""
    made: list[Told] = []
    spare = iter(("other1", "other2", "other3", "other4", "stays", "lost"))
    for told in taken:
        method = told.record.spec.method
        plain = method in PLAIN and all(method != other.kind for other in made)
        kind = method if plain else next(spare)
        alike = [record, *(other.record for other in taken)]
        twice = sum(method == other.spec.method for other in alike) > 1
        differences = find_differences(subject_of(record), subject_of(told.record))
        title = told.record.spec.id if twice else ""
        made.append(replace(told, kind=kind, title=title, differences=differences))
    return made


def _missing(facts: Facts) -> list[str]:
    """Facts that are missing, and what would provide them."""
    run, record = facts.run, facts.run.record
    found = []
    if record.status == "running":
        found.append("How it ends: the run is under way. The same command later tells more.")
    if run.measured.final is None:
        found.append("Accuracy: no evaluation has been summed so far.")
    if any(tried.course is None for tried in record.attempts if tried.status != "open"):
        found.append(
            "Times and counted bytes of rounds that were played by an older release: it wrote none down."
        )
    if not run.traffic.is_measured:
        found.append(
            "Counted bytes: none crossed a network, or none were written down. What is shown is pinned."
        )
    if not run.histories:
        found.append(
            "Each site's own accuracy and what its training said: a coordinator has only sums over sites. Name the "
            "sites' folders with --sites to have them here."
        )
    elif len(run.histories) < len(record.sites):
        away = sorted(set(record.sites) - set(run.histories))
        found.append(f"The histories of {', '.join(away[:10])}{' and others' if len(away) > 10 else ''}.")
    found += [
        f"What {method} reaches: no finished run of it with the same data was found in the same state folder; "
        "name one with --beside."
        for method in PLAIN
        if facts.find(method) is None and record.spec.method != method
    ]
    return found


def _open_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"--out {folder} cannot be used: {error.strerror}", expected="a folder this user may write to"
        ) from None
    return folder.resolve()
