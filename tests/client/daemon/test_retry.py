"""Trying again: until the coordinator answers, until there is room, once more with a trainer that died."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from pfl_client.connection.link import Unreachable
from pfl_client.daemon import retry
from pfl_client.daemon.retry import Retry
from pfl_client.daemon.status import Watch
from pfl_client.trainer_process.api import TrainerLost
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.errors import Refused


class Act:
    """Fails with these errors, one after the other, and then gives its word."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)

    async def __call__(self) -> str:
        if self.troubles:
            raise self.troubles.pop(0)
        return "done"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses asked for; nobody waits."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(retry, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    return taken


@pytest.fixture
def site(tmp_path: Path, pauses: list[float]) -> Retry:
    """That of a site in a run with a lease of four seconds."""
    found = Retry(Watch("hospital-a"), tmp_path)
    found.fit(4.0)
    return found


async def test_a_silent_coordinator_is_called_until_it_answers(site: Retry, pauses: list[float]) -> None:
    """After pauses that double up to half a lease, at random between a half and the whole."""
    assert "done" == await site.until_answered(Act(*[Unreachable("down")] * 4))
    assert [True] * 4 == [
        full / 2 <= pause < full for pause, full in zip(pauses, (0.5, 1.0, 2.0, 2.0), strict=True)
    ]
    assert site._watch.connected


async def test_a_refusal_is_not_tried_again(site: Retry, pauses: list[float]) -> None:
    """Only for want of room at the coordinator: that one is counted, waited for, and does answer."""
    with pytest.raises(Refused, match="late"):
        await site.until_answered(Act(Refused("no_room", "full"), Refused("late", "too late")))
    assert ({"no_room": 1}, 1) == (site._watch.refused, len(pauses))


async def test_what_is_kept_for_speed_goes_first(site: Retry, pauses: list[float]) -> None:
    """Only when there is nothing to give back the site waits, is seen waiting, and goes back to what it did."""
    given, site._watch.doing = [True, False], "uploading"
    assert "done" == await site.until_room(Act(DiskFull("full"), DiskFull("full")), lambda: given.pop(0))
    assert ([], [0.5], "uploading") == (given, pauses, site._watch.doing)


async def test_a_trainer_is_asked_twice_at_most(site: Retry) -> None:
    """Each loss is counted."""
    lost = TrainerLost("killed")
    assert "done" == await site.with_trainer(Act(lost))
    with pytest.raises(TrainerLost):
        await site.with_trainer(Act(lost, lost))
    assert 3 == site._watch.trainer.lost


async def test_pauses_after_tasks_that_failed(site: Retry, pauses: list[float]) -> None:
    """Each twice the one before, up to half a lease; after one that went well they begin anew."""
    for _ in range(4):
        await site.pause_in_vain()
    site.went_well()
    await site.pause_in_vain()
    assert ([0.5, 1.0, 2.0, 2.0, 0.5], "waiting") == (pauses, site._watch.doing)


async def test_answers_that_come_at_once_and_bring_nothing(site: Retry, pauses: list[float]) -> None:
    """A few are nothing odd; after many in a row the site pauses, longer each time, until one took its time."""
    for _ in range(retry.MOST_QUICK):
        await site.calm(0.0)
    assert [] == pauses
    for _ in range(3):
        await site.calm(0.0)
    assert 3 == len(pauses)
    assert retry.FIRST_PAUSE <= pauses[0] < pauses[1] < pauses[2]
    await site.calm(retry.QUICK_SECONDS)
    await site.calm(0.0)
    assert 3 == len(pauses)


@pytest.mark.parametrize("lease", [1e-300, 1e-9, 0.05])
async def test_however_short_a_lease_is_a_site_does_not_spin(site: Retry, lease: float) -> None:
    """Half of it would be no pause at all."""
    site.fit(lease)
    assert site.longest >= retry.SHORTEST_PAUSE
