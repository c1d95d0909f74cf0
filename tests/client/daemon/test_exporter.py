"""A site's numbers: those of the contract and no others, each as one can work it out by hand."""

from __future__ import annotations

import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from pfl_client.connection.link import Traffic, Unreachable
from pfl_client.daemon import exporter, retry
from pfl_client.daemon.exporter import NUMBERS, HealthServer, SiteMetrics, Surroundings
from pfl_client.daemon.loop import Daemon
from pfl_client.process import _look_around
from pfl_client.trainer_process.api import Done, Job, Progress, TrainerLost
from pfl_common.errors import DataError, Refused, StateError
from pfl_common.identity import Keyring
from pfl_common.spec.messages import Blob, Joined
from pfl_common.spec.run import Kind
from tests.client.run_folder.test_space import Usage
from tests.client.support.scripted_site import FINISHED, Line, Trainer, assign, pin, put_together
from tests.network.federation import Federation

OPEN = "application/openmetrics-text; version=1.0.0"
TRAINED = {"load": 0.25, "train": 2.0, "encode": 0.5}
PHASES = {"wait", "download", "open", "load", "train", "encode", "seal", "report", "upload"}
CONTRACT = {
    "pfl_site": ("info", ("site", "run", "method", "version", "device")),
    "pfl_site_connected": ("gauge", ()),
    "pfl_site_doing": ("gauge", ("doing",)),
    "pfl_site_round": ("gauge", ()),
    "pfl_site_rounds_planned": ("gauge", ()),
    "pfl_site_task_timestamp_seconds": ("gauge", ()),
    "pfl_site_tasks": ("counter", ("kind",)),
    "pfl_site_phase_seconds": ("summary", ("phase",)),
    "pfl_site_bytes": ("counter", ("direction", "kind")),
    "pfl_site_left_updates": ("counter", ()),
    "pfl_site_left_bytes": ("counter", ()),
    "pfl_site_accuracy_ratio": ("gauge", ("measure",)),
    "pfl_site_loss": ("gauge", ("measure",)),
    "pfl_site_learning": ("gauge", ("name",)),
    "pfl_site_declined": ("counter", ("reason",)),
    "pfl_site_refused": ("counter", ("code",)),
    "pfl_site_lost_trainers": ("counter", ()),
    "pfl_site_trainer_memory_bytes": ("gauge", ("of",)),
    "pfl_site_batches_halved": ("gauge", ()),
    "pfl_site_certificate_end_timestamp_seconds": ("gauge", ()),
    "pfl_site_disk_free_bytes": ("gauge", ()),
}


class Measured(Trainer):
    """A trainer that says how long it took, where, and what it holds."""

    async def work(self, job: Job, progress: Progress) -> Done:
        done = await super().work(job, progress)
        memory = {"resident": 300 << 20, "device": 2 << 30}
        return replace(done, seconds=dict(TRAINED), device="cuda: Card 7", memory=memory, halved=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0)


def read(site: Daemon, around: Surroundings | None = None) -> dict[str, Metric]:
    """The families a scrape would give."""
    numbers = SiteMetrics(site.watch, Traffic(), lambda: around or Surroundings())
    return {metric.name: metric for metric in numbers.collect()}


def values(metric: Metric, ending: str = "") -> dict[str, float]:
    """The values of a number by its one label; "" without labels."""
    samples = [sample for sample in metric.samples if sample.name.endswith(ending)]
    return {next(iter(sample.labels.values()), ""): sample.value for sample in samples}


def one(metric: Metric) -> float:
    """The value of a number that has a single one."""
    (sample,) = metric.samples
    return sample.value


async def live(site: Daemon) -> dict[str, Metric]:
    """A site's whole life, and what is seen of it in the end."""
    assert FINISHED == await site.run()
    return read(site)


def test_the_numbers_are_those_of_the_contract() -> None:
    """Dashboards and rules are written against these names, types and labels."""
    assert CONTRACT == {number.name: (number.kind, number.labels) for number in NUMBERS}
    assert [] == [number.name for number in NUMBERS if not number.words.endswith(".")]
    assert [] == [number.name for number in NUMBERS if number.labels and not number.values]


def test_a_site_that_has_just_been_started(tmp_path: Path) -> None:
    """Counters begin at 0, so that the first step is seen as one; what is not known is not there."""
    seen = read(put_together(Line([]), Trainer(), tmp_path / "state"))
    assert list(CONTRACT) == list(seen)
    assert {"train": 0.0, "evaluate": 0.0, "finish": 0.0} == values(seen["pfl_site_tasks"])
    assert dict.fromkeys(PHASES, 0.0) == values(seen["pfl_site_phase_seconds"], "_count")
    assert {"starting"} == {name for name, value in values(seen["pfl_site_doing"]).items() if value}
    assert 14 == len(seen["pfl_site_doing"].samples)
    assert (0.0, 0.0) == (one(seen["pfl_site_connected"]), one(seen["pfl_site_left_updates"]))
    assert {0.0} == set(values(seen["pfl_site_declined"]).values())
    missing = {name for name, metric in seen.items() if not metric.samples}
    assert {
        "pfl_site_task_timestamp_seconds",
        "pfl_site_accuracy_ratio",
        "pfl_site_loss",
        "pfl_site_learning",
        "pfl_site_refused",
        "pfl_site_trainer_memory_bytes",
        "pfl_site_certificate_end_timestamp_seconds",
        "pfl_site_disk_free_bytes",
    } == missing


async def test_a_run_of_two_rounds(tmp_path: Path) -> None:
    """Tasks, phases, what left, what was measured and learned, and who did it."""
    work = [assign(), assign(number=2, since=1), assign(Kind.FINISH, 2, since=2), FINISHED]
    line = Line([None, *work])
    site = put_together(line, Measured(), tmp_path / "state")
    seen = await live(site)
    assert ["init", "train", "train", "finish"] == line.kinds
    assert {"train": 2.0, "evaluate": 0.0, "finish": 1.0} == values(seen["pfl_site_tasks"])
    assert (2.0, 3.0) == (one(seen["pfl_site_round"]), one(seen["pfl_site_rounds_planned"]))
    assert site.watch.task_began == one(seen["pfl_site_task_timestamp_seconds"]) > 1.6e9
    # Four answers to the question for work; an empty one does not count. Uploads follow training alone.
    counts = dict.fromkeys(PHASES - {"wait", "upload"}, 3.0) | {"wait": 4.0, "upload": 2.0}
    assert counts == values(seen["pfl_site_phase_seconds"], "_count")
    sums = values(seen["pfl_site_phase_seconds"], "_sum")
    assert (0.75, 6.0, 1.5) == (sums["load"], sums["train"], sums["encode"])
    assert all(sums[phase] > 0 for phase in PHASES)
    assert (2.0, 16.0) == (one(seen["pfl_site_left_updates"]), one(seen["pfl_site_left_bytes"]))
    assert {"pre/test/combined": 0.75} == values(seen["pfl_site_accuracy_ratio"])
    assert {"pre/test/combined": 0.5} == values(seen["pfl_site_loss"])
    assert {"loss": 1.0} == values(seen["pfl_site_learning"])
    assert {"resident": 314572800.0, "device": 2147483648.0} == values(seen["pfl_site_trainer_memory_bytes"])
    assert 1.0 == one(seen["pfl_site_batches_halved"])
    assert {"over"} == {name for name, value in values(seen["pfl_site_doing"]).items() if value}
    who = {"site": "hospital-a", "run": "run-1", "method": "fedavg", "version": "0.1.0"}
    assert who | {"device": "cuda: Card 7"} == seen["pfl_site"].samples[0].labels
    assert 1.0 == one(seen["pfl_site_connected"])


async def test_what_goes_wrong_is_counted(tmp_path: Path) -> None:
    """A trainer that died once, a task that could not be done, two messages that were not taken."""
    troubles = {"submit": [Refused("late", "too late"), Refused("no_room", "full"), Unreachable("down")]}
    line = Line([assign(), assign(number=2), assign(number=3), FINISHED], troubles=dict(troubles))
    trainer = Measured([TrainerLost("killed"), DataError("a file is gone")])
    seen = await live(put_together(line, trainer, tmp_path / "state"))
    assert 1.0 == one(seen["pfl_site_lost_trainers"])
    declined = values(seen["pfl_site_declined"])
    assert {"data_changed": 1.0} == {reason: count for reason, count in declined.items() if count}
    assert {"late": 1.0, "no_room": 1.0} == values(seen["pfl_site_refused"])
    assert 1.0 == one(seen["pfl_site_left_updates"])


async def test_a_trainer_that_is_gone_holds_no_memory(tmp_path: Path) -> None:
    """What it held last is not shown after its death."""
    line = Line([assign(), assign(number=2, since=1), FINISHED])
    trainer = Measured()
    site = put_together(line, trainer, tmp_path / "state")

    async def die(progress: Progress) -> None:
        if len(trainer.jobs) > 1:
            raise TrainerLost("killed")

    trainer.during = die
    seen = await live(site)
    assert {} == values(seen["pfl_site_trainer_memory_bytes"])
    assert 1.0 == values(seen["pfl_site_declined"])["trainer_failed"]


async def test_what_left_does_not_fall_with_a_restart(tmp_path: Path) -> None:
    """It is counted from the list of this run; what is handed in a second time has left once, half a line is none."""
    state = tmp_path / "state"
    await live(put_together(Line([assign(), FINISHED]), Trainer(), state))
    lost = StateError("a sudden end, after the receipt")
    with pytest.raises(StateError):
        await put_together(
            Line([assign(number=2, since=1), assign(number=2, since=1), lost]), Trainer(), state
        ).run()
    with (state / "audit.jsonl").open("a") as file:
        file.write('{"task": "0000')
    seen = await live(put_together(Line([FINISHED]), Trainer(), state))
    assert (2.0, 16.0) == (one(seen["pfl_site_left_updates"]), one(seen["pfl_site_left_bytes"]))


async def test_what_left_is_known_before_the_first_call(tmp_path: Path) -> None:
    """A site that is started anew shows at once what left for all its runs: a counter that fell would rise again."""
    state = tmp_path / "state"
    joins = [Joined(pin(run).to_json(), Blob("first", 5)) for run in ("run-1", "run-2")]
    for joined, run in zip(joins, ("run-1", "run-2"), strict=True):
        await live(put_together(Line([assign(run=run), FINISHED], [joined]), Trainer(), state))
    with (state / "audit.jsonl").open("a") as file:
        file.write('{"task": "0000')
    (state / "runs" / "run-0").mkdir()
    site = put_together(Line([FINISHED], [joins[1]]), Trainer(), state)
    seen = read(site)
    assert (2.0, 16.0) == (one(seen["pfl_site_left_updates"]), one(seen["pfl_site_left_bytes"]))
    seen = await live(site)
    assert (2.0, 16.0) == (one(seen["pfl_site_left_updates"]), one(seen["pfl_site_left_bytes"]))


async def test_what_left_for_an_earlier_run_has_left_too(tmp_path: Path) -> None:
    """A site that is taken into another run goes on counting, and forgets what it measured in the first."""
    joins = [Joined(pin(run).to_json(), Blob("first", 5)) for run in ("run-1", "run-2")]
    unknown = Refused("not_joined", "join first")
    line = Line([assign(), unknown, FINISHED], list(joins))
    seen = await live(put_together(line, Measured(), tmp_path / "state"))
    assert (1.0, {}) == (one(seen["pfl_site_left_updates"]), values(seen["pfl_site_accuracy_ratio"]))


async def test_who_waits_for_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is to be seen while it is full, and not any longer."""
    frees, doing = [0, 1 << 40], []
    site = put_together(Line([FINISHED]), Trainer(), tmp_path / "state")

    def look(folder: Path) -> Usage:
        doing.append(site.watch.doing)
        return Usage(frees.pop(0))

    def complain(event: str, **words: object) -> None:
        doing.append(site.watch.doing)

    monkeypatch.setattr(shutil, "disk_usage", look)
    monkeypatch.setattr(retry.log, "error", complain, raising=False)
    await live(site)
    assert ["joining", "waiting for room", "joining"] == doing


def test_what_lies_around_a_site(tmp_path: Path) -> None:
    """Its certificate as it is on the disk at that moment, and the room there; what cannot be known is left out."""
    federation = Federation(tmp_path)
    keyring = federation.keyring("hospital_a")
    seen = _look_around(keyring, tmp_path)
    ends = datetime.fromtimestamp(seen.certificate_end, UTC)
    assert (False, True) == (
        keyring.expired(ends - timedelta(seconds=1)),
        keyring.expired(ends + timedelta(seconds=1)),
    )
    assert 0 < seen.disk_free <= shutil.disk_usage(tmp_path).total
    assert Surroundings() == _look_around(Keyring.open(tmp_path / "new"), tmp_path / "gone")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Daemon, Traffic, str]]:
    """A site's pages on a port, and where they are."""
    site, traffic = put_together(Line([assign(), FINISHED]), Measured(), tmp_path / "state"), Traffic()
    around = Surroundings(certificate_end=2.0e9, disk_free=123456789)
    server = HealthServer(SiteMetrics(site.watch, traffic, lambda: around), ready=lambda: True)
    yield site, traffic, f"http://127.0.0.1:{server.start('127.0.0.1', 0)}"
    server.stop()


def fetch(url: str, accept: str = "*/*") -> str:
    """A page."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as page:
        return str(page.read().decode())


async def test_a_scrape_takes_both_forms(served: tuple[Daemon, Traffic, str], tmp_path: Path) -> None:
    """Strict readers take both; what is declared is there, and beside it only what every Python process shows."""
    site, traffic, url = served
    await site.run()
    traffic.come("train", 7)
    traffic.go("calls", 5)
    text = fetch(f"{url}/metrics", OPEN)
    families = {family.name: family for family in read_open(text)}
    own = {name for name in families if not name.startswith(("process_", "python_"))}
    assert {number.name for number in NUMBERS} == own
    assert "process_resident_memory_bytes" in families
    crossed = {tuple(s.labels.values()): s.value for s in families["pfl_site_bytes"].samples if s.value}
    assert {("down", "train"): 7.0, ("up", "calls"): 5.0} == crossed
    assert 2.0e9 == one(families["pfl_site_certificate_end_timestamp_seconds"])
    assert 123456789.0 == one(families["pfl_site_disk_free_bytes"])
    plain = {family.name for family in read_plain(fetch(f"{url}/metrics"))}
    assert {"pfl_site_left_updates", "pfl_site_phase_seconds", "pfl_site_info"} <= plain
    assert [] == [word for word in (str(tmp_path), "encoder", "000001-1", "update 1") if word in text]


async def test_the_other_pages(served: tuple[Daemon, Traffic, str]) -> None:
    """Health and readiness beside them; anything else says what there is."""
    _, _, url = served
    assert ("ok\n", "ready\n") == (fetch(f"{url}/healthz"), fetch(f"{url}/readyz"))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(f"{url}/else")


@pytest.fixture
def knock(served: tuple[Daemon, Traffic, str]) -> Iterator[Callable[[], socket.socket]]:
    """Connects to the pages and says nothing."""
    port = int(served[2].rpartition(":")[2])
    with ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(("127.0.0.1", port), 10))


def test_who_connects_and_is_silent_keeps_nobody_waiting(
    served: tuple[Daemon, Traffic, str], knock: Callable[[], socket.socket]
) -> None:
    """A port that is only looked at, or a request that stops half-way, costs no page."""
    for _ in range(3):
        knock().sendall(b"GET /healthz HT")
        knock()
    assert "ok\n" == fetch(f"{served[2]}/healthz")


def test_who_is_silent_is_hung_up_on(
    knock: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After a while, and without a line in the log."""
    monkeypatch.setattr(exporter._Quiet, "timeout", 0.1)
    silent = [knock(), knock()]
    silent[0].sendall(b"GET /healthz HT")
    assert [b"", b""] == [line.recv(1) for line in silent]
    assert ("", "") == capfd.readouterr()


def test_many_who_are_silent_at_once(
    served: tuple[Daemon, Traffic, str], knock: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are only so many threads: who comes when all are taken waits until the first silent one is gone."""
    monkeypatch.setattr(exporter._Quiet, "timeout", 2.0)
    for _ in range(exporter.MOST_AT_ONCE + 1):
        knock()
    assert "ok\n" == fetch(f"{served[2]}/healthz")
    answering = [one.name for one in threading.enumerate() if "process_request_thread" in one.name]
    assert len(answering) <= exporter.MOST_AT_ONCE


def test_nobody_is_heard_for_longer_than_a_probe_waits() -> None:
    """A probe that is not answered in some seconds ends the site in mid-training."""
    assert 5.0 == exporter._Quiet.timeout
