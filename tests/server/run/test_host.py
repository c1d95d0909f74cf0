"""A run in the life of a coordinator, before it has begun."""

import asyncio
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.messages import Joined, Over
from pfl_common.spec.run import Description
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.run.host import RunHost
from pfl_server.run.observer import describe
from pfl_server.run.specification import begin
from pfl_server.settings import ServerSettings
from pfl_server.status.view import View


async def test_the_desk_is_swapped_when_the_run_is_frozen(tmp_path: Path) -> None:
    """A site that waits has its answer from the run; from then on the fleet is asked, until the run fails."""
    host = RunHost(ServerSettings(method="fedavg", sites=1, state=tmp_path / "state"), OpenEnvelopes())
    gathering, running = host.desk, asyncio.create_task(host.run())
    description = Description(shape=(4,), classes=("x", "y"), samples=3, kind="array")
    assert isinstance(await gathering.join("a", description), Joined)
    assert (gathering, host.played.fleet) == (host.reception, host.desk)
    await host.desk.next_task("a", (), wait=10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    host.fail("the disk is broken")
    waiting = asyncio.create_task(host.notices.farewell(100))
    await host.desk.leave("a")
    await asyncio.wait_for(waiting, 10)
    assert ("failed", "the disk is broken") == (host.status().status, host.status().words)
    with pytest.raises(Refused, match="the disk is broken") as refused:
        await host.desk.join("a", description)
    assert "run_failed" == refused.value.code
    host.runs.close()


async def test_stopping_reaches_the_run(tmp_path: Path) -> None:
    """The operator's word is the host's, whichever part answers the sites."""
    host = RunHost(ServerSettings(method="fedavg", sites=1, state=tmp_path / "state"), OpenEnvelopes())
    running = asyncio.create_task(host.run())
    await host.desk.join("a", Description(shape=(4,), classes=("x", "y"), samples=3, kind="array"))
    host.stop()
    while not isinstance(work := await host.desk.next_task("a", (), wait=10), Over):
        await host.desk.decline("a", work.task.key, "stopping", "")
    assert "stopped" == work.status
    await running
    host.runs.close()


async def test_stopped_before_it_began(tmp_path: Path) -> None:
    """The operator stops while one of two sites is awaited: no run is made, and the site that waits is told."""
    host = RunHost(ServerSettings(method="fedavg", sites=2, state=tmp_path / "state"), OpenEnvelopes())
    running = asyncio.create_task(host.run())
    joining = asyncio.create_task(
        host.desk.join("a", Description(shape=(4,), classes=("x", "y"), samples=3, kind="array"))
    )
    await asyncio.sleep(0)
    host.stop()
    with pytest.raises(Refused, match="operator stopped"):
        await joining
    await running
    assert ("stopped", "stopped") == (host.status().status, View(host, lambda sites: {}).state)
    assert "info" == host.status().events[0].level
    assert [] == list((tmp_path / "state" / "runs").iterdir())
    host.runs.close()


def test_every_rule_is_told_before_and_during_a_run(tmp_path: Path) -> None:
    """With the value that was asked for; what the run has pinned is told in the same words. How downloads cross is
    settled when the run begins.
    """
    chosen = {
        "lease_seconds": 7.0,
        "quorum": 0.5,
        "participation": "0.5..1",
        "drop": 0.25,
        "largest_norm": 5.0,
    }
    settings = ServerSettings(method="fedavg", state=tmp_path / "state", **chosen)
    host = RunHost(settings, OpenEnvelopes())
    sites = {name: Description((4,), ("x", "y"), 3, "array") for name in "ab"}
    books = begin(host.runs, settings, sites)
    rules, during = settings.told(), describe(books.spec)
    settled = {**rules, "downlink": "bf16"}
    for expected, told in ((rules, host.status().spec), (settled, during)):
        assert expected == {name: told.get(name) for name in rules}
    assert rules.items() >= chosen.items()
    books.journal.close()
    host.runs.close()


def test_what_a_killed_coordinator_kept_goes_when_it_starts(tmp_path: Path) -> None:
    """Of every run: nobody looks into an old one's folder again."""
    old = tmp_path / "state" / "runs" / "fedavg-001-abcdef"
    (old / "spool" / "blanks").mkdir(parents=True)
    (old / "spool" / "blanks" / "1").write_bytes(b"old")
    (old / "spool" / "000001-1-a.raw").write_bytes(b"an update")
    host = RunHost(ServerSettings(method="fedavg", sites=2, state=tmp_path / "state"), OpenEnvelopes())
    assert ["000001-1-a.raw"] == [path.name for path in (old / "spool").iterdir()]
    host.runs.close()
