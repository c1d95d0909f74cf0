"""How long a site waits before it tries a coordinator again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pfl_client.connection.link import Unreachable
from pfl_client.daemon import heartbeat
from pfl_client.daemon import loop as story
from pfl_client.daemon.loop import Daemon
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import Refused
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import Blob, Joined, Mark, Over
from pfl_common.spec.run import Description, Model, RunSpec
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.support.scripted_site import FINISHED, Line, Trainer, assign, put_together

MODEL = Model("mlp", (1, 4, 4), ("a", "b"))


class GoneForAWhile:
    """A Link whose coordinator takes the site in, is away for many calls, and ends the run."""

    def __init__(self, spec: RunSpec, failures: int) -> None:
        self._spec, self._failures = spec, failures

    async def join(self, description: Description) -> Joined | None:
        return Joined(self._spec.to_json(), Blob("first", 5))

    async def fetch(self, blob: Blob, into: Path, *, kind: str = "init", **about: object) -> None:
        into.write_bytes(b"model")

    async def next_task(self, marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()) -> Over:
        self._failures -= 1
        if self._failures >= 0:
            raise Unreachable("away")
        return Over("finished")

    async def leave(self) -> None:
        """Nothing to say."""


class Idle:
    """A Bench that gets no work."""

    async def describe(self, folder: DataFolder) -> Description:
        return Description(MODEL.shape, MODEL.classes, 8)

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Nothing to read."""

    async def close(self) -> None:
        """Nothing to end."""


async def test_no_pause_outlasts_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted coordinator waits a lease's time for its sites: a pause is shorter, even drawn at its longest."""
    pauses, sleep = [], asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds == heartbeat.HEARTBEAT_SECONDS:
            await sleep(3600)  # a heart that beats is no pause; it ends with its task
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(story.asyncio, "sleep", note)
    spec = RunSpec(
        "run-1",
        "fedavg",
        {},
        MODEL,
        rounds=3,
        seed=7,
        roster=("a",),
        lease_seconds=6.0,
        manifests={"init": (Entry("w", "float32", (2,)),)},
    )
    daemon = Daemon(
        DataFolder(tmp_path, "a"),
        link=GoneForAWhile(spec, 9),
        bench=Idle(),
        envelopes=OpenEnvelopes(),
        state=tmp_path / "state",
    )
    assert Over("finished") == await daemon.run()
    assert 9 == len(pauses)
    assert max(pauses) <= 4.5
    assert pauses[-1] >= 1.5


async def test_what_goes_wrong_again_and_again_is_done_in_peace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is refused or declined may be asked for again at once: each time the site waits longer, whoever
    is only late does not wait, and after one that went well it begins anew.
    """
    pauses, sleep = [], asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds != heartbeat.HEARTBEAT_SECONDS:
            pauses.append(seconds)
        await sleep(3600 if seconds == heartbeat.HEARTBEAT_SECONDS else 0)

    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 99.0)
    monkeypatch.setattr(story.asyncio, "sleep", note)
    troubles = [Refused(code, "no") for code in ("size", "late", "header", "seal", "size", "size", "size")]
    line = Line([assign() for _ in troubles] + [FINISHED], troubles={"submit": troubles})
    await put_together(line, Trainer(), tmp_path / "state").run()
    assert [0.5, 1.0, 2.0, 4.0, 7.5, 7.5] == pauses
    pauses.clear()
    line = Line([assign(), assign(), assign(number=2), assign(number=2), FINISHED])
    line.troubles["submit"] = [Refused("size", "no")]
    line.troubles["report"] = [Refused("size", "no")]
    await put_together(line, Trainer(), tmp_path / "other").run()
    assert [0.5, 1.0] == pauses


async def test_a_coordinator_that_is_away_for_long_is_not_worth_a_line_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first tries are told, then one a minute, and the return."""

    async def no_time(seconds: float) -> None:
        if seconds == heartbeat.HEARTBEAT_SECONDS:
            await asyncio.Event().wait()

    monkeypatch.setattr(story.asyncio, "sleep", no_time)
    spec = RunSpec(
        "run-1",
        "fedavg",
        {},
        MODEL,
        rounds=3,
        seed=7,
        roster=("a",),
        lease_seconds=6.0,
        manifests={"init": (Entry("w", "float32", (2,)),)},
    )
    daemon = Daemon(
        DataFolder(tmp_path, "a"),
        link=GoneForAWhile(spec, 500),
        bench=Idle(),
        envelopes=OpenEnvelopes(),
        state=tmp_path / "state",
    )
    assert Over("finished") == await daemon.run()
    said = "".join(capsys.readouterr())
    assert 3 == said.count("the coordinator does not answer")
    assert 1 == said.count("the coordinator answers again")
