"""The story of a site, with a line and a trainer made here: what it asks, does, keeps, says, and when it gives up."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.daemon import heartbeat as heart
from pfl_client.daemon import loop as story
from pfl_client.daemon import retry
from pfl_client.data import layout
from pfl_client.policy.refusal import Forbidden
from pfl_client.run_folder.audit import entries
from pfl_client.run_folder.downloads import Downloads
from pfl_client.run_folder.folder import RunFolder
from pfl_client.trainer_process.api import DataFolder, Progress, TrainerLost
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.errors import DataError, Refused, SettingError, StateError
from pfl_common.evaluation import REPORTS
from pfl_common.spec.messages import (
    OPENING,
    Assignment,
    Blob,
    Gathering,
    Joined,
    Mark,
    Over,
)
from pfl_common.spec.packages import Package
from pfl_common.spec.run import NOT_SUMMED, Description, Kind
from tests.client.support.scripted_site import (
    BYTES,
    DESCRIPTION,
    FINISHED,
    SCORES,
    SITE,
    Line,
    Trainer,
    assign,
    live,
    pin,
    put_together,
    quick,
    with_policy,
)

assert quick  # nobody waits here


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The site's state folder."""
    return tmp_path / "state"


async def test_a_run_from_its_first_to_its_last_task(state: Path) -> None:
    """Join, fetch, train, report, hand in, finish: in this order, and each result is kept before it is sent."""
    joined = Joined(pin().to_json(), Blob("first", 5))
    line = Line(
        [None, assign(), assign(number=2, since=1), assign(Kind.FINISH, 2, since=2), FINISHED], [None, joined]
    )
    trainer = Trainer()
    assert FINISHED == await live(line, trainer, state)
    round_ = ["fetch", "report", "submit"]
    assert ["join", "join", "fetch", *round_, *round_, "fetch", "report", "leave"] == line.names()
    assert [DESCRIPTION, DESCRIPTION] == line.hear("join")
    sent = [("000001-1-train", b"update 1"), ("000002-1-train", b"update 2")]
    assert sent == line.hear("submit")
    assert [(), (), (Mark(1, 1),), (Mark(2, 1), Mark(1, 1)), (Mark(2, 1), Mark(1, 1))] == line.marks
    run = state / "runs" / "run-1"
    assert "model" == (run / "serving" / "serving.safetensors").read_text()
    assert [None, "state after 1", "state after 2"] == trainer.began_with
    audit = list(entries(state, "run-1"))
    assert [("000001-1-train", 8, ["encoder.weight"]), ("000002-1-train", 8, ["encoder.weight"])] == [
        (entry["task"], entry["bytes"], entry["names"]) for entry in audit if entry["kind"] == "update"
    ]
    assert ["update", "receipt", "update", "receipt"] == [entry["kind"] for entry in audit]
    assert [] == list((run / "downloads").iterdir()), "a download is not kept"


@pytest.mark.parametrize(
    ("work", "said"),
    [([FINISHED], 1), ([assign(), FINISHED], 0), ([Over("failed", "no quorum")], 0)],
    ids=["too late", "in time", "a failed run has words of its own"],
)
async def test_a_run_that_ended_without_this_site(
    state: Path,
    capsys: pytest.CaptureFixture[str],
    work: list[Assignment | Over | Exception | None],
    said: int,
) -> None:
    """A site that came too late hears so, and how to be in the next run."""
    await live(Line(work), Trainer(), state)
    told = "".join(capsys.readouterr())
    assert (said, said) == (told.count("the run ended without this site"), told.count("--stay"))


async def test_a_run_that_needs_a_package_that_is_not_here_is_declined(state: Path) -> None:
    """Before anything of it is fetched, read or kept, in words that name the package; the site says goodbye."""
    spec = replace(pin(), method="fedmine", packages={"method": Package("not-here", "1.2")})
    line = Line([], [Joined(spec.to_json(), Blob("first", 5))])
    with pytest.raises(
        SettingError, match=r"the method fedmine of the package not-here 1\.2, which is not installed"
    ):
        await live(line, Trainer(), state)
    assert ["join", "leave"] == line.names()
    assert [] == list((state / "runs").glob("*"))


async def test_a_line_that_is_down_is_waited_for(state: Path) -> None:
    """Whatever cannot be said now is said later; nothing is done twice because of it."""
    down = {
        name: [Unreachable("down"), Unreachable("down")] for name in ("join", "fetch", "report", "submit")
    }
    line = Line([Unreachable("down"), assign(), FINISHED], troubles=dict(down))
    trainer = Trainer()
    assert FINISHED == await live(line, trainer, state)
    assert [("000001-1-train", b"update 1")] * 3 == line.hear("submit")
    assert 1 == len(trainer.jobs)


async def test_a_trainer_that_dies_once(state: Path) -> None:
    """The task is tried once more, and the coordinator hears nothing of it; also while the data are read."""
    line, trainer = Line([assign(), FINISHED]), Trainer([TrainerLost("killed")], [TrainerLost("killed")])
    site = put_together(line, trainer, state)
    await site.run()
    assert ([], 1) == (line.hear("decline"), len(line.hear("submit")))
    assert (2, 2) == (len(trainer.jobs), site.watch.trainer.lost)


@pytest.mark.parametrize(
    ("troubles", "reason", "words"),
    [
        ([TrainerLost("ended by SIGKILL")] * 2, "trainer_failed", "ended by SIGKILL"),
        ([DataError("a file is gone", file="patient-7.png")], "data_changed", "a file is gone"),
        ([DiskFull("no room is left", advice="free some")], "disk_full", "no room is left"),
    ],
)
async def test_a_task_that_cannot_be_done(
    state: Path, troubles: list[Exception], reason: str, words: str
) -> None:
    """It is declined with a reason from the list, in words that name no file; then life goes on."""
    line, trainer = Line([assign(), assign(number=2), FINISHED]), Trainer(list(troubles))
    assert FINISHED == await live(line, trainer, state)
    assert [("000001-1-train", reason, words)] == line.hear("decline")
    assert [("000002-1-train", b"update 2")] == line.hear("submit")


async def test_no_path_crosses_with_a_declined_task(state: Path) -> None:
    """Data that went away in mid-run: what the coordinator hears does not say where they lay."""
    line, trainer = Line([assign(), FINISHED]), Trainer()

    async def look(progress: Progress) -> None:
        layout.find(DataFolder(state.parent / "data", SITE))

    trainer.during = look
    assert FINISHED == await live(line, trainer, state)
    assert [("000001-1-train", "data_changed", "the data folder does not exist")] == line.hear("decline")
    assert str(state.parent) not in str(line.said)


async def test_a_trainer_that_dies_twice_is_lost_twice(state: Path) -> None:
    """Each loss is counted, also the one after which the task is declined."""
    site = put_together(Line([assign(), FINISHED]), Trainer([TrainerLost("killed")] * 2), state)
    await site.run()
    assert (2, 1) == (site.watch.trainer.lost, site.watch.declined["trainer_failed"])


async def test_a_coordinator_that_was_started_anew(state: Path) -> None:
    """A site that is not known any more joins again, and takes part in the run there is now."""
    first, second = (Joined(pin(name).to_json(), Blob("first", 5)) for name in ("run-1", "run-2"))
    unknown = Refused("not_joined", "join first")
    line, trainer = Line([assign(), unknown, assign(run="run-2"), FINISHED], [first, None, second]), Trainer()
    assert FINISHED == await live(line, trainer, state)
    assert ["run-1", "run-2"] == trainer.opened
    assert [None, None] == trainer.began_with, "another run does not begin with this one's state"
    assert {"run-1", "run-2"} == {folder.name for folder in (state / "runs").iterdir()}


async def test_another_refusal_ends_the_site(state: Path) -> None:
    """What no program of ours would say is not asked for ever."""
    with pytest.raises(Refused, match="bad_request"):
        await live(Line([Refused("bad_request", "unreadable")]), Trainer(), state)


async def test_a_site_that_is_not_admitted(state: Path) -> None:
    """Trying again would not help: the words go to the user who started it, even if the line is down by then."""
    line = Line([], [NotAdmitted("your classes", "classes")], {"leave": [Unreachable("down")]})
    with pytest.raises(NotAdmitted, match="your classes"):
        await live(line, Trainer(), state)


@pytest.mark.parametrize("error", [DataError("the data folder is empty"), TrainerLost("no memory")])
async def test_data_that_cannot_be_read(state: Path, error: Exception) -> None:
    """A site that knows nothing of its data joins nothing."""
    line = Line([])
    with pytest.raises(type(error)):
        await live(line, Trainer(before=[error, error]), state)
    assert ["leave"] == line.names()


GONE = NotAdmitted("not of this federation", "certificate")
"""What ends a site that stays."""


async def stay(line: Line, trainer: Trainer, state: Path) -> list[str]:
    """The life of a site that stays, until it is turned away; gives what it was seen doing at each join and each
    asking for work.
    """
    site, doing = put_together(line, trainer, state, stays=True), []
    join, next_task = line.join, line.next_task

    async def note_join(description: Description) -> Joined | None:
        doing.append(site.watch.doing)
        return await join(description)

    async def note_asking(marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()) -> Assignment | Over | None:
        doing.append(site.watch.doing)
        return await next_task(marks, before)

    line.join, line.next_task = note_join, note_asking  # type: ignore[method-assign]
    with pytest.raises(NotAdmitted, match="not of this federation"):
        await asyncio.wait_for(site.run(), 20)
    return doing


async def test_a_site_that_stays(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks until there is another run; its trainer's memory is free meanwhile, and each run is told of once."""
    monkeypatch.setattr(retry, "LONGEST_PAUSE", 0.0)
    first, second = (Joined(pin(run).to_json(), Blob("first", 5)) for run in ("run-1", "run-2"))
    unknown = Refused("not_joined", "join first")
    line = Line([FINISHED, FINISHED, FINISHED, unknown, FINISHED, GONE], joins=[first, None, second])
    trainer = Trainer()
    doing = await stay(line, trainer, state)
    assert ["run-1", "run-2"] == trainer.opened
    # Back at the desk it is over; only the coordinator's word that a run is to begin makes it a joining site.
    resting = ["over"] * 4
    assert ["joining", "waiting", *resting, "joining", "waiting", "over"] == doing
    assert (3, 3) == (line.names().count("join"), trainer.closed)
    assert 2 == "".join(capsys.readouterr()).count("the run is over")


@pytest.mark.parametrize("handed", [False, True], ids=["between two tasks", "with a task that waits"])
async def test_a_failed_run_that_is_tried_again(
    state: Path, monkeypatch: pytest.MonkeyPatch, *, handed: bool
) -> None:
    """A site that stays goes on with it, without joining; while it reads its data again, its task is kept for it."""
    monkeypatch.setattr(retry, "LONGEST_PAUSE", 0.0)
    failed, waiting = Over("failed", "too few sites"), assign() if handed else None
    line = Line([failed, failed, waiting, assign(), FINISHED, GONE])
    trainer, heard, grown = Trainer(), [], asyncio.Event()
    trainer.reading = grown

    async def heartbeat(key: str, progress: int) -> bool:
        heard.append((key, progress))
        # The coordinator takes every sign of a site that opens a run, but only progress with a task.
        if len(heard) == 1 or key == OPENING or len({p for k, p in heard if k == key}) > 1:
            grown.set()
        return True

    real = trainer.open

    async def read(folder: DataFolder, spec: str, init: Path) -> None:
        grown.clear()
        await real(folder, spec, init)

    monkeypatch.setattr(line, "heartbeat", heartbeat)
    monkeypatch.setattr(trainer, "open", read)
    await stay(line, trainer, state)
    assert ["run-1", "run-1"] == trainer.opened
    assert {OPENING, "000001-1-train"} if handed else {OPENING} <= {key for key, _ in heard}
    assert (1, 1) == (line.names().count("join"), line.names().count("submit"))


async def test_a_run_that_failed_before_it_began(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A site that stays waits for its operator to mend it, says so once, and takes part in the next one."""
    monkeypatch.setattr(retry, "LONGEST_PAUSE", 0.0)
    failed = [NotAdmitted("the classes differ", "run_failed") for _ in range(3)]
    line = Line([FINISHED, GONE], joins=[*failed, None])
    trainer = Trainer()
    assert ["joining", "over", "over", "over", "joining", "waiting", "over"] == await stay(
        line, trainer, state
    )
    assert ["run-1"] == trainer.opened
    assert 1 == "".join(capsys.readouterr()).count("the classes differ")


async def test_a_coordinator_that_refuses_does_answer(state: Path) -> None:
    """Being turned away is no silence."""
    site = put_together(Line([], [NotAdmitted("the run failed", "run_failed")]), Trainer(), state)
    with pytest.raises(NotAdmitted, match="the run failed"):
        await site.run()
    assert site.watch.connected


async def test_a_site_that_comes_back_says_no_goodbye(state: Path) -> None:
    """It says that it stops and will come back: the daemon started on its folder next goes on with its task."""
    line = Line([assign()])
    daemon = put_together(line, Trainer(), state)
    at_work = asyncio.Event()

    async def train(progress: Progress) -> None:
        at_work.set()
        await asyncio.Event().wait()

    daemon._bench.during = train  # type: ignore[attr-defined]
    life = asyncio.create_task(daemon.run())
    await at_work.wait()
    daemon.comes_back = True
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await life
    assert ("leave" not in line.names(), "pause") == (True, line.names()[-1])


async def test_signs_of_life_while_a_task_is_at_work(state: Path) -> None:
    """Samples trained and bytes fetched are told while the trainer works."""
    line = Line([assign(), FINISHED])

    async def train(progress: Progress) -> None:
        progress(7)
        await line.beaten.wait()

    assert FINISHED == await live(line, Trainer(during=train), state)


@pytest.mark.parametrize(("part", "work"), [(Downloads, "open"), (RunFolder, "keep")])
async def test_signs_of_life_while_the_daemon_is_at_work_on_its_files(
    state: Path, monkeypatch: pytest.MonkeyPatch, part: type, work: str
) -> None:
    """Parcels of gigabytes are opened and closed for longer than a lease lasts: that is told as progress too."""
    line, beating = Line([assign(), FINISHED]), threading.Event()
    monkeypatch.setattr(heart, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(story, "PROMPT_BYTES", 0)
    heard = []

    async def heartbeat(key: str, progress: int) -> bool:
        heard.append(progress)
        if progress > len(BYTES) + 1:
            beating.set()
        return True

    monkeypatch.setattr(line, "heartbeat", heartbeat)
    real = getattr(part, work)

    def take_long(*given: object) -> object:
        assert beating.wait(20)
        return real(*given)

    monkeypatch.setattr(part, work, take_long)
    assert FINISHED == await live(line, Trainer(), state)
    assert sorted(heard) == heard


async def test_signs_of_life_while_the_data_are_read(state: Path) -> None:
    """A large folder takes its time: the coordinator hears of it, and the site asks for no task before."""
    line = Line([Over("finished")])
    trainer = Trainer(reading=line.heard_opening)
    await put_together(line, trainer, state).run()
    assert line.heard_opening.is_set()
    assert [()] == line.marks


async def test_a_signal_in_the_middle_of_a_task(state: Path) -> None:
    """The trainer is ended, goodbye is said but not waited for, and the folder is free for the next start."""
    line, at_work = Line([assign()]), asyncio.Event()

    async def train(progress: Progress) -> None:
        at_work.set()
        await asyncio.Event().wait()

    line.left = asyncio.Event().wait  # type: ignore[assignment]  # a coordinator that never answers
    trainer = Trainer(during=train)
    life = asyncio.create_task(live(line, trainer, state))
    await asyncio.wait_for(at_work.wait(), 10)
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(life, 10)
    assert [] == line.hear("submit")
    assert FINISHED == await live(Line([assign(), FINISHED]), Trainer(), state)


async def test_a_large_download_goes_as_a_file(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a message may hold is named by its path."""
    line, trainer = Line([assign(), FINISHED]), Trainer()
    await live(line, trainer, state)
    assert BYTES == trainer.jobs[0].down
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", len(BYTES) - 1)
    line, trainer = Line([assign(number=2, since=1), FINISHED]), Trainer()
    await live(line, trainer, state)
    assert isinstance(trainer.jobs[0].down, Path)
    assert [] == list(state.glob("runs/*/downloads/*")), "what was opened does not stay"


async def test_a_coordinator_that_asks_for_sums_is_told_them(state: Path) -> None:
    """The folder is described once more, with sums; a coordinator that asks again is not answered for ever."""
    asks = Gathering(("sums",), sums=True)
    line, seen = Line([Over("finished")], joins=[asks, asks]), list[bool]()
    told = replace(DESCRIPTION, moments=NOT_SUMMED)

    class Summing(Trainer):
        async def describe(self, folder: DataFolder) -> Description:
            seen.append(folder.sums)
            return told if folder.sums else DESCRIPTION

    await live(line, Summing(), state)
    assert [False, True] == seen
    assert [DESCRIPTION, told, told] == line.hear("join")


async def test_a_run_that_the_policy_forbids_is_declined_as_a_whole(state: Path) -> None:
    """Nothing is fetched for it; the coordinator hears the rule's name, people of the site rule and file."""
    line = Line([])
    with pytest.raises(Forbidden, match=r"runs\.methods in .*policy\.toml"):
        await with_policy(line, Trainer(), state, '[runs]\nmethods = ["dualfed"]').run()
    assert ["join", "decline", "leave"] == line.names()
    assert [(OPENING, "policy", "this site's policy: runs.methods")] == line.hear("decline")
    assert [] == list((state / "runs").glob("*"))


async def test_an_older_coordinator_does_not_know_a_declined_run(state: Path) -> None:
    """It refuses the word, and hears the goodbye."""
    line = Line([], troubles={"decline": [Refused("late", "no such task")]})
    with pytest.raises(Forbidden):
        await with_policy(line, Trainer(), state, "[runs]\nsmallest_cohort = 2").run()
    assert "leave" == line.names()[-1]


async def test_the_policy_is_kept_task_by_task_and_through_restarts(state: Path) -> None:
    """After one update no other leaves; what is measured is told still, without the diagnostics."""
    text = "[runs]\nrounds = 1\n[metrics]\ndiagnostics = false"
    joined = Joined(replace(pin(), versions={REPORTS: "told"}).to_json(), Blob("first", 5))
    first = Line([assign(), StateError("a sudden end")], [joined])
    with pytest.raises(StateError):
        await with_policy(first, Trainer(), state, text).run()
    assert [("000001-1-train", SCORES)] == first.hear("report")
    trainer = Trainer()
    later = [assign(number=2, since=1), assign(Kind.EVALUATE, 2, since=1), FINISHED]
    again = Line(list(later), [joined])
    await with_policy(again, trainer, state, text).run()
    assert [("000002-1-train", "policy", "this site's policy: runs.rounds")] == again.hear("decline")
    assert [Kind.EVALUATE] == [job.task.kind for job in trainer.jobs], "no time was spent on the other"
    assert [] == again.hear("submit")


async def test_what_is_withheld_is_not_said_when_joining(state: Path) -> None:
    """Whatever the coordinator asks later."""
    spec = replace(pin(), settings={"aggregation": "uniform"})
    line = Line([FINISHED], [Joined(spec.to_json(), Blob("first", 5))])
    await with_policy(line, Trainer(), state, '[joining]\nclass_names = "no"\ncounts = "none"').run()
    (said,) = line.hear("join")
    assert replace(DESCRIPTION, classes=(), samples=None, warnings=(), moments=NOT_SUMMED) == said


def test_progress_tells_no_number_of_samples_where_that_is_withheld(tmp_path: Path) -> None:
    """Only that there is some, once for each time that there is more."""
    link, told = Line([]), (5, 5, 905, 906)
    assert list(told) == [heart.Heart(link, "key", tmp_path)._tell(done) for done in told]
    hiding = heart.Heart(link, "key", tmp_path, hides=True)
    assert [1, 1, 2, 3] == [hiding._tell(done) for done in told]
