"""One run of a comparison in a process of its own: torch's threads and generator belong to a process.

The process reads a request from its standard input and writes what came of it to its standard output.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # plain values from JSON

from pfl_common.app.config import settle
from pfl_common.errors import DataError, RunFailed, SettingError, StateError, UserError
from pfl_deploy.comparison.outcome import Accuracies, Outcome
from pfl_deploy.report.sources.coordinator import Record, read_record
from pfl_deploy.report.sources.sites import Curve, History, find_histories
from pfl_deploy.report.sources.traffic import exchanged
from pfl_deploy.simulation.simulate import WAITING, Result, find_sites, simulate
from pfl_server.settings import ServerSettings

PARTS = ("validation", "test", "shifted")
"""Parts of a site's data that accuracy is told of; `shifted` where there is one."""
_MENDABLE = {kind.exit_code: kind for kind in (SettingError, DataError, StateError)}
"""What a worker found that a person can mend, by its exit code."""


def play(request: Mapping[str, Any], name: str) -> Outcome:
    """Play a run and give what came of it; what a person has to mend ends the comparison."""
    with _lifeline() as end:
        command = [sys.executable, "-m", "pfl_deploy.comparison.worker", str(end)]
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, check=False, pass_fds=(end,)
        )
    if done.returncode < 0:
        return Outcome(failed=f"its process was ended by {_name_signal(-done.returncode)}", lasting=False)
    if done.returncode in _MENDABLE and done.stdout:
        words = json.loads(done.stdout)
        kind = _MENDABLE[done.returncode]
        raise kind(f"{name}: {words['seen']}", expected=words["expected"], advice=words["advice"])
    if done.returncode:
        raise RunFailed(f"{name}: {done.stderr.strip()[-2000:]}")
    return Outcome.from_json(json.loads(done.stdout))


@contextmanager
def _lifeline() -> Iterator[int]:
    """The reading end of a pipe that closes when this process is gone, however it went."""
    end, own = os.pipe()
    try:
        yield end
    finally:
        os.close(end)
        os.close(own)


def _end_with(end: int) -> None:
    """Interrupt this process once the pipe closes: a comparison that was killed leaves nothing at work, and no memory
    taken by a run's folders.
    """

    def watch() -> None:
        os.read(end, 1)
        os.kill(os.getpid(), signal.SIGINT)

    # Started in the background a program ignores SIGINT, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=watch, daemon=True).start()


def run_request(request: Mapping[str, Any]) -> Outcome:
    """One simulation: its accuracies after the last round, or why there are none."""
    folders = find_sites(Path(request["data"]))
    with tempfile.TemporaryDirectory(prefix=f"pfl-compare-{os.getpid()}-", dir=_memory()) as scratch:
        place = Path(scratch)
        settings = settle(
            ServerSettings,
            run_settings(request["server"]) | {"sites": len(folders), "state": str(place / "coordinator")},
            what="compare",
        )
        try:
            read = {"hold_out": request.get("hold_out", 0.0), "blind": request.get("blind", False)}
            result = simulate(settings, folders, place / "sites", **read)
        except RunFailed as failed:
            return Outcome(failed=str(failed))
        record = read_record(place / "coordinator" / "runs" / result.spec.id)
        return read_outcome(result, place / "sites", record)


def run_settings(server: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings. Every site counts in every round: which do must not depend on how busy the machine is. Nothing
    is held back to validate on unless the comparison says so: the papers' methods train on all they have.
    """
    return WAITING | {"validation": 0.0} | dict(server)


def read_outcome(result: Result, sites: Path, record: Record) -> Outcome:
    """A finished run's result, from the sites' histories and the coordinator's facts about its parcels."""
    histories = find_histories([sites], result.spec.id, result.spec.hash)
    accuracy: Accuracies = {}
    samples: dict[str, dict[str, int]] = {}
    for part in PARTS:
        measure = f"pre/{part}/combined"
        ended = {site: history for site, history in histories.items() if measure in history.end}
        if ended:
            accuracy[part] = {site: history.end[measure] for site, history in ended.items()}
            samples[part] = {site: int(history.samples[measure]) for site, history in ended.items()}
    rounds = _read_rounds(histories, result.spec.rounds)
    return Outcome(
        accuracy,
        {number: statistics.fmean(found.values()) for number, found in rounds.items()},
        rounds,
        samples,
        exchanged(record),
    )


def _read_rounds(histories: Mapping[str, History], rounds: int) -> dict[int, dict[str, float]]:
    """Each site's accuracy at the rounds that all sites measured."""
    curves = {site: _curve(history, rounds) for site, history in histories.items()}
    shared = set.intersection(*(set(curve) for curve in curves.values())) if curves else set()
    return {number: {site: curve[number] for site, curve in curves.items()} for number in sorted(shared)}


def _curve(history: History, rounds: int) -> Curve:
    for point in ("pre", "post"):
        if curve := history.accuracy.get(f"{point}/test/combined"):
            end = history.end.get("pre/test/combined")
            return {**curve, **({} if end is None else {rounds: end})}
    return {}


def answer(request: str) -> int:
    """The worker's process: the result, or words about what a person can mend; gives the exit code."""
    try:
        sys.stdout.write(json.dumps(run_request(json.loads(request)).to_json()))
    except UserError as error:
        sys.stdout.write(json.dumps({"seen": error.seen, "expected": error.expected, "advice": error.advice}))
        return error.exit_code
    return 0


def _name_signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"{name}: the machine had no memory left?" if name == "SIGKILL" else name


def _memory() -> Path | None:
    """A folder in memory where there is one: these runs are thrown away, and syncing each round costs more than
    training it (on a busy disk a run used a third of its core, in memory all of it)."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else None


if __name__ == "__main__":
    from pfl_common.app.logs import configure

    configure(level="error")
    _end_with(int(sys.argv[1]))
    raise SystemExit(answer(sys.stdin.read()))
