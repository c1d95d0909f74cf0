"""`pfl simulate --replay`: a real run, with all its losses, played again from its journal to the same bytes."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pfl_client.trainer_process.api import Done, Job, Progress
from pfl_client.trainer_process.task_errors import Diverged
from pfl_common.app.config import settle
from pfl_common.learning.method import LocalData, Participant
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Task
from pfl_common.tensors.update import Up, Weighted
from pfl_deploy.cli import main
from pfl_deploy.simulation.loopback import LoopbackBench
from pfl_deploy.simulation.recording import take_copy
from pfl_deploy.simulation.simulate import find_sites, simulate
from pfl_server.decisions import sampling
from pfl_server.settings import ServerSettings
from pfl_server.store.journal import Journal
from tests.deploy.support.killing import Federation, Mortals
from tests.deploy.support.processes import write_site
from tests.words import check_clear, speak

A, B, C, D = (f"hospital_{x}" for x in "abcd")
LATEST = 400
RULE = Participation.parse("0.5..1.0", drop=0.4)
QUORUM = 0.5
WORDS = (
    *("--method", "fedcac", "--backbone", "resnet8", "--sites", "3", "--rounds", str(LATEST)),
    *("--participation", "0.5..1.0", "--drop", "0.4", "--quorum", str(QUORUM), "--lease-seconds", "3"),
    *("--evaluate-every", "4"),
)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """Three sites at the beginning and the folder of a fourth."""
    folders = [
        write_site(tmp_path / "data" / site, samples=20 + 6 * seed, size=12, seed=seed)
        for seed, site in enumerate((A, B, C, D))
    ]
    machine = Mortals(tmp_path / "machine")
    yield Federation(machine, folders, *WORDS)
    machine.end_all()


def rounds_that_can_do_without(site: str, *, of: tuple[str, ...], after: int) -> list[int]:
    """Rounds that ask a site for its update and that end with a quorum if it does not come."""
    draws = {n: sampling.draw(RULE, seed=0, number=n, candidates=of) for n in range(after + 1, LATEST)}
    return [
        number
        for number, draw in draws.items()
        if site in draw.cohort and site not in draw.drops
        if len(draw.cohort) - len(draw.drops) > draw.quorum(QUORUM)
    ]


def lose(federation: Federation, point: str) -> int:
    """Wait for a site's death at a point and for the end of its lease; gives the round that went on without it."""
    number = federation.death(C, point)
    federation.wait(lambda: "committed" in federation.status(number))
    assert "lease" == losses(federation, number)[C]
    return number


def losses(federation: Federation, number: int) -> dict[str, str]:
    """Who was lost in a committed round, and how."""
    rows = federation.ask("select losses from attempt where round = ? and status = 'committed'", number)
    return json.loads(str(rows[0][0]))


def latest(federation: Federation) -> int:
    """The last round that was opened."""
    return int(str(federation.ask("select max(round) from attempt")[0][0]))


def wait_until_counted(federation: Federation, site: str, *, after: int) -> None:
    """Until a site's update was counted in a round past this one."""
    question = "select counted from attempt where round > ? and status = 'committed'"
    federation.wait(lambda: any(site in json.loads(str(c)) for (c,) in federation.ask(question, after)))


def fingerprint(folder: Path) -> dict[Path, tuple[int, int]]:
    """What would show that somebody wrote below a folder."""
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}


def play_losses(federation: Federation) -> tuple[int, int]:
    """Drawn drop-outs, a site lost before it trained and once after, a late joiner, the coordinator killed with
    receipts out and started again, an early end; gives the rounds of the two losses.
    """
    machine = federation.machine
    machine.wish(C, "unsaved", rounds_that_can_do_without(C, of=(A, B, C), after=1))
    federation.serve()
    federation.enter(A, B, C)
    untrained = lose(federation, "unsaved")
    assert untrained > federation.kept(C)[0]
    federation.enter(C, D)
    wait_until_counted(federation, D, after=untrained)
    wait_until_counted(federation, C, after=untrained)
    machine.wish("server", "receipted", range(latest(federation) + 2, LATEST))
    halted = federation.death("server", "receipted")
    assert "open" in federation.status(halted)
    federation.serve()
    wait_until_counted(federation, C, after=halted)
    machine.wish(C, "outbox", rounds_that_can_do_without(C, of=(A, B, C, D), after=latest(federation)))
    trained = lose(federation, "outbox")
    assert trained == federation.kept(C)[0]
    federation.enter(C)
    wait_until_counted(federation, C, after=trained)
    assert 0 == machine.call("pfl", "stop").returncode
    assert [0] * 4 == federation.end()
    return untrained, trained


def test_a_run_of_losses_is_played_again(federation: Federation, tmp_path: Path) -> None:
    """The same sites counted in the same rounds, the same bytes, and nothing written below the run that is replayed."""
    machine = federation.machine
    untrained, trained = play_losses(federation)
    # Looked at, it has written down all it has counted, and nobody calls it any more: from here on it writes nothing.
    machine.read(f"{machine.discovery()['http']}/metrics")
    before = fingerprint(federation.run)
    words = ("--replay", federation.run, "--data", tmp_path / "data", "--out", tmp_path / "again")
    said = speak(main, "simulate", *words)
    check_clear(said, 0, f"run {federation.run.name} played again: the same bytes after round")
    assert before == fingerprint(federation.run)
    assert 0 == machine.stop(federation.server)
    again = tmp_path / "again" / "coordinator" / "runs" / federation.run.name
    first, second = (
        {file.name: file.read_bytes() for file in run.glob("checkpoints/*.safetensors")}
        for run in (federation.run, again)
    )
    assert 2 == len(first)
    assert first == second
    with closing(Journal(again / "journal.sqlite")) as journal:
        replayed = {row["round"]: (row["cohort"], row["drops"]) for row in journal.rounds()}
    assert C not in replayed[untrained][0]
    assert C in replayed[trained][1]
    dropped = [n for n in replayed if n > 0 and "dropped" in losses(federation, n).values()]
    assert [] != dropped


# -- small runs, without processes


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two sites and three rounds, from the simulator: a run's folder is a run's folder."""
    folder = tmp_path_factory.mktemp("played")
    for seed, site in enumerate((A, B)):
        write_site(folder / "data" / site, samples=12 + 6 * seed, size=12, seed=seed)
    given = {"method": "fedcac", "rounds": 3, "backbone": "resnet8", "drop": 0.3, "state": folder / "first"}
    settings = settle(ServerSettings, given, what="test")
    simulate(settings, find_sites(folder / "data"), folder / "sites").coordinator.rename(folder / "run")
    return folder


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    """The folder of that run, to do with it as one likes, with the sites' folders beside it."""
    for name in ("data", "run"):
        shutil.copytree(played / name, tmp_path / name)
    return tmp_path / "run"


def test_a_finished_run_and_one_that_goes_on(run: Path, tmp_path: Path) -> None:
    """Of a run whose last round is still open, the rounds before are played; a folder of another site is no matter."""
    write_site(tmp_path / "data" / "hospital_x", samples=8, size=12)
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data", "--json")
    check_clear(said, 0)
    assert 3 == json.loads(said.out)["round"]
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        journal.execute("update run set status = 'running'")
        journal.execute("update attempt set status = 'open', counted = '[]' where round = 3")
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data", "--json")
    check_clear(said, 0)
    assert 2 == json.loads(said.out)["round"]


def test_a_robust_run_and_one_that_fell_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The median of three, one of which went too far once; in round 3 all diverge once, and it begins from round 1."""
    for seed, site in enumerate((A, B, C)):
        write_site(tmp_path / "data" / site, samples=10 + 4 * seed, size=12, seed=seed)
    given = {"method": "fedavg", "rounds": 3, "backbone": "mlp", "sites": 3, "quorum": 0.5}
    given |= {"robust": "median", "change_factor": 20.0, "state": tmp_path / "first"}
    work, report = LoopbackBench.work, Participant.report

    async def diverge_once(bench: LoopbackBench, job: Job, progress: Progress) -> Done:
        if (job.task.kind, job.task.round, job.task.attempt) == ("train", 3, 1):
            raise Diverged("the model is spoilt")
        return await work(bench, job, progress)

    def go_far(site: Participant, data: LocalData, task: Task) -> Up:
        up = report(site, data, task)
        far = 1e4 if (data.site, task.round) == (B, 2) else 1.0
        return Up({name: Weighted(far * term.value, term.weight) for name, term in up.summed.items()})

    with monkeypatch.context() as patch:
        patch.setattr(LoopbackBench, "work", diverge_once)
        patch.setattr(Participant, "report", go_far)
        settings = settle(ServerSettings, given, what="test")
        run = simulate(settings, find_sites(tmp_path / "data"), tmp_path / "sites").coordinator
    with closing(Journal(run / "journal.sqlite")) as journal:
        rows = journal.rounds()
        assert {3: 1} == journal.fallbacks()
    assert {B: "refused:change"} == rows[1]["losses"]
    assert ["committed", "committed", "abandoned", "committed"] == [row["status"] for row in rows]
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data", "--json")
    check_clear(said, 0)
    assert 3 == json.loads(said.out)["round"]


def test_other_data_end_in_other_bytes(run: Path, tmp_path: Path) -> None:
    """The first tensor that differs is named, and the exit code tells a script."""
    file = tmp_path / "data" / B / "train.npz"
    with np.load(file) as arrays:
        x, y = arrays["x"], arrays["y"]
    x[0, 0, 0] ^= 1
    np.savez(file, x=x, y=y)
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data")
    phrases = (
        "does not end in the same bytes after round 3",
        "the first tensor that differs is ",
        "elements",
    )
    check_clear(said, 5, *phrases, "whether a data folder has changed")


def test_a_site_that_cannot_do_it_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dropped out then and is lost for another reason now: that is said, not only that the bytes differ."""
    work = LoopbackBench.work

    async def fail(self: LoopbackBench, job: Job, progress: Progress) -> Done:
        if job.task.drop:
            raise Diverged("the loss is not a number")
        return await work(self, job, progress)

    monkeypatch.setattr(LoopbackBench, "work", fail)
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data")
    check_clear(said, 5, "could not be played as it was", f"lost here: {A} (diverged)", f"the updates of {B}")


def test_a_missing_site(run: Path, tmp_path: Path) -> None:
    """Without the data of a site that was counted there is nothing to play."""
    shutil.rmtree(tmp_path / "data" / B)
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data")
    check_clear(said, 3, f"{B} was counted in round", "no folder below --data", "called after the site")


@pytest.mark.parametrize(
    ("words", "code", "phrases"),
    [
        (("--replay", "data"), 2, ("data is not the folder of a run", "pfl-state/runs/RUN")),
        (("--replay", "run", "--rounds", "3", "--set", "a=1"), 2, ("--replay with --rounds, --set", "leave")),
        (("--replay", "run", "--out", "run/asked.json"), 4, ("run/asked.json cannot be made", "--out")),
        (
            ("--replay", "run", "--data", "run"),
            3,
            (
                "no folder below --data is called after a site of run fedcac-",
                "there are: checkpoints,",
                f"a folder of data for each of {A}, {B}, called so",
            ),
        ),
        (("--replay", "run", "--out", "data"), 4, ("data is not empty", "a new folder", "--out")),
    ],
)
def test_wrong_words(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    phrases: tuple[str, ...],
) -> None:
    """What cannot be played again is said before anything is computed."""
    monkeypatch.chdir(tmp_path)
    check_clear(speak(main, "simulate", "--data", "data", *words), code, *phrases)


def test_a_run_without_a_whole_checkpoint(run: Path, tmp_path: Path) -> None:
    """A damaged file is not what the run ended in: nothing is compared with it."""
    for file in run.glob("checkpoints/*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data")
    check_clear(
        said, 4, "3 committed rounds and no whole checkpoint of any", "bring its folder back from a copy"
    )


# -- the copy


def test_a_journal_is_copied_while_it_is_written(run: Path, tmp_path: Path) -> None:
    """The coordinator that holds it neither fails nor is changed, and the copy is as of its last commit."""
    with closing(Journal(run / "journal.sqlite")) as journal:
        journal.end("stopped", "while somebody looks")
        (tmp_path / "copy").mkdir()
        copy = take_copy(run, tmp_path / "copy")
        journal.end("stopped", "afterwards")
        assert ("stopped", "afterwards") == journal.status()
    with closing(Journal(copy.journal)) as copied:
        assert ("stopped", "while somebody looks") == copied.status()
    assert {2, 3} == copy.checkpoints.keys()


def test_a_journal_of_a_killed_coordinator(run: Path, tmp_path: Path) -> None:
    """A commit that a kill left half done is undone in the copy; the run's own files stay as they are."""
    dead = tmp_path / "dead"
    dead.mkdir()
    with closing(sqlite3.connect(run / "journal.sqlite", isolation_level=None)) as journal:
        # So small a cache that the transaction is in the file before its commit.
        for word in ("journal_mode = truncate", "cache_size = 1"):
            journal.execute(f"pragma {word}")
        journal.execute("begin")
        journal.executemany("insert into score values (?, ?)", [(f"k{n}", "x" * 5000) for n in range(200)])
        for name in ("journal.sqlite", "journal.sqlite-journal"):
            shutil.copy(run / name, dead / name)
    before = {file.name: file.read_bytes() for file in dead.iterdir()}
    (tmp_path / "copy").mkdir()
    copy = take_copy(dead, tmp_path / "copy")
    with closing(Journal(copy.journal)) as journal:
        assert 3 == len(journal.committed())
        assert [] == [key for key in journal.scores() if key.startswith("k")]
    assert before == {file.name: file.read_bytes() for file in dead.iterdir()}
