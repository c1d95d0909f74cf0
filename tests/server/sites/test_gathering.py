"""The Desk before there is a run: it gathers, holds, and says why when there will be none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.messages import Gathering, Joined, Over, RunStatus
from pfl_common.spec.run import NOT_SUMMED, Description
from pfl_server.sites import gathering as module
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.gathering import Reception, Rules
from pfl_server.sites.notices import Notices
from pfl_server.store.run_store import Books
from tests.server.support.federation import DESCRIPTION, build_spec, open_run


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[Books]:
    books = open_run(tmp_path, build_spec(sites=("a", "b")))
    yield books
    books.journal.close()


def build_fleet(books: Books) -> Fleet:
    return Fleet(books)


async def test_sites_are_held_until_the_run_is_frozen(books: Books) -> None:
    """Two sites come, the run opens with both, and both get it in answer to the call they already made."""
    desk = Reception("fedavg")
    gathering = asyncio.create_task(desk.gather(2))
    joining = [asyncio.create_task(desk.join(site, DESCRIPTION)) for site in "ba"]
    assert {"a": DESCRIPTION, "b": DESCRIPTION} == await gathering
    desk.open(build_fleet(books))
    assert [Joined(books.spec.to_json(), books.init.blob)] * 2 == await asyncio.gather(*joining)


async def test_a_call_that_comes_as_the_run_is_frozen(books: Books) -> None:
    """It was meant for the gathering and is answered by the run: its site is registered at once, as a late one."""
    desk = Reception("fedavg")
    desk.open(build_fleet(books))
    assert isinstance(await desk.join("z", DESCRIPTION), Joined)
    assert "z" in books.journal.sites()


async def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A joining site is told to ask again after a while; it stays gathered, and asking again counts once."""
    monkeypatch.setattr(module, "JOIN_WAIT", 0.0)
    desk = Reception("fedavg")
    assert [None, None] == [await desk.join("a", DESCRIPTION) for _ in range(2)]
    gathering = asyncio.create_task(desk.gather(2))
    await asyncio.sleep(0)
    assert not gathering.done()
    newer = Description((2,), ("cat",), kind="array")
    await desk.join("a", newer)
    await desk.join("b", DESCRIPTION)
    assert {"a": newer, "b": DESCRIPTION} == await gathering


async def test_thousands_that_wait_are_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests are gone through when there may be enough of them, and of many not at each call; the more there are, the
    longer each is held.
    """
    looks, look = [], Reception._here
    monkeypatch.setattr(Reception, "_here", lambda desk: (looks.append(len(desk._gathered)), look(desk))[1])
    monkeypatch.setattr(module, "FEW", 3)
    desk = Reception("fedavg")
    gathering = asyncio.create_task(desk.gather(40))
    joining = [asyncio.create_task(desk.join(f"site_{n}", DESCRIPTION)) for n in range(39)]
    await asyncio.sleep(0)
    assert 39 == len(desk._gathered)
    joining += [asyncio.create_task(desk.join(f"late_{n}", DESCRIPTION)) for n in range(10)]
    assert 49 == len(await asyncio.wait_for(gathering, 10))
    assert [49] == looks
    for task in joining:
        task.cancel()
    waits = []
    for guests in (2, 2_500, 5_000, 1_000_000):
        desk._gathered = dict.fromkeys(range(guests))
        waits.append(desk._join_wait)
    assert [5.0, 5.0, 10.0, 20.0] == waits


async def test_of_many_guests_not_each_call_is_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough are known and none is here: thousands of calls a second would each go through all of them."""
    looks = list[int]()
    monkeypatch.setattr(Reception, "_here", lambda desk: looks.append(len(desk._gathered)) or [])
    monkeypatch.setattr(module, "FEW", 3)
    monkeypatch.setattr(module, "LOOK_SECONDS", 60.0)
    desk = Reception("fedavg")
    calls = [asyncio.create_task(desk.gather(1))]
    for n in range(30):
        calls.append(asyncio.create_task(desk.join(f"site_{n}", DESCRIPTION)))
        for _ in range(3):
            await asyncio.sleep(0)
    assert [1, 2, 3] == looks
    for call in calls:
        call.cancel()


async def test_a_site_that_goes_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no longer counted among those gathered."""
    monkeypatch.setattr(module, "JOIN_WAIT", 0.0)
    desk = Reception("fedavg")
    await desk.join("a", DESCRIPTION)
    await desk.leave("a")
    await desk.join("b", DESCRIPTION)
    assert {"b": DESCRIPTION} == await desk.gather(1)


async def test_a_site_that_falls_silent_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits for sites that are here: a killed one is away after a lease."""
    now = 100.0
    monkeypatch.setattr(module, "JOIN_WAIT", 0.0)
    monkeypatch.setattr(module, "monotonic", lambda: now)
    desk = Reception("fedavg", wanted={"lease_seconds": 4.0})
    await desk.join("a", DESCRIPTION)
    now = 104.0
    assert (1, 0, 0) == desk.heard()
    now = 104.5
    assert (0, 1, 0) == desk.heard()
    (line,) = desk.status().sites
    assert ("away", "away", 4.5) == (line.state, line.phase, line.seen_seconds)
    gathering = asyncio.create_task(desk.gather(2))
    await desk.join("b", DESCRIPTION)
    await asyncio.sleep(0)
    assert not gathering.done()
    await desk.join("c", DESCRIPTION)
    assert ["b", "c"] == list(await gathering)


async def test_a_call_that_waits_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a call is held, its site is here; when its line breaks under the call, it is away at once."""
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    desk = Reception("fedavg", wanted={"lease_seconds": 4.0})
    waiting = asyncio.create_task(desk.join("a", DESCRIPTION))
    await asyncio.sleep(0)
    now = 150.0
    assert (1, 0, 0) == desk.heard()
    assert ("here", 0.0) == (desk.status().sites[0].state, desk.status().sites[0].seen_seconds)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (0, 1, 0) == desk.heard()
    (line,) = desk.status().sites
    assert ("away", "away", "away, its line is closed") == (line.state, line.phase, line.doing)
    again = asyncio.create_task(desk.join("a", DESCRIPTION))
    await asyncio.sleep(0)
    assert ((1, 0, 0), "waiting") == (desk.heard(), desk.status().sites[0].doing)
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_a_run_that_cannot_begin() -> None:
    """Who waits and who comes later is told why; the status says it too."""
    desk = Reception("fedavg", notices := Notices())
    waiting = asyncio.create_task(desk.join("a", DESCRIPTION))
    await desk.gather(1)
    notices.end("failed", "the whole federation knows 1 class", level="error")
    desk.end(Over("failed", "the whole federation knows 1 class"))
    for call in (waiting, desk.join("b", DESCRIPTION)):
        with pytest.raises(Refused, match="the whole federation knows 1 class") as refused:
            await call
        assert "run_failed" == refused.value.code
    assert "the whole federation knows 1 class" == desk.status().words


async def test_nothing_but_joining_before_the_run() -> None:
    """Every other call is refused with the advice to join."""
    desk = Reception("fedavg")
    for call in (
        desk.stored("a", "x"),
        desk.report("a", "x", {}),
        desk.decline("a", "x", "dropped", ""),
    ):
        with pytest.raises(Refused, match=r"^not_joined.*join first"):
            await call
    for plain in (lambda: desk.heartbeat("a", "x", 0), lambda: desk.blob("a", "0" * 64)):
        with pytest.raises(Refused, match=r"^not_joined.*join first"):
            plain()


async def test_work_before_the_run_is_not_there_yet(books: Books) -> None:
    """A site of a restarted coordinator that still reads its books asks again, or waits and gets the answer."""
    desk = Reception("fedavg")
    assert None is await desk.next_task("a", (), wait=0)
    waiting = asyncio.create_task(desk.next_task("a", (), wait=10))
    await asyncio.sleep(0)
    fleet = build_fleet(books)
    fleet.end(Over("finished"))
    desk.open(fleet)
    assert Over("finished") == await waiting


async def test_the_status_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has come so far, and what is asked for."""
    monkeypatch.setattr(module, "JOIN_WAIT", 0.0)
    desk = Reception("fedavg", wanted={"rounds": 7, "sites": 3})
    await desk.join("b", DESCRIPTION)
    await desk.join("a", DESCRIPTION)
    status: RunStatus = desk.status()
    assert ("gathering", ["a", "b"]) == (status.status, [site.site for site in status.sites])
    assert (0, 7, 3) == (status.round, status.rounds, status.spec["sites"])


async def test_sites_are_asked_for_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they count as gathered; one that does not know the question is held for a while and reads why."""
    monkeypatch.setattr(module, "JOIN_WAIT", 0.0)
    desk = Reception("fedavg", rules=Rules(sums=True))
    picture = Description((1, 8, 8), ("cat", "dog"))
    asked = [await desk.join("a", picture) for _ in range(2)]
    assert [True, True] == [isinstance(answer, Gathering) and answer.sums for answer in asked]
    assert "--normalise agreed" in asked[0].words[0]
    told = replace(picture, moments=NOT_SUMMED)
    assert None is await desk.join("a", told)
    assert {"a": told} == await desk.gather(1)
    assert None is await desk.join("b", DESCRIPTION), "of tables sums were told from the first"
