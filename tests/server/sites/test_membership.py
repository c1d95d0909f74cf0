"""Who is here, who is away and for how long, who has left: in the list of sites, for leases, and over restarts."""

from __future__ import annotations

import asyncio
from json import loads
from time import time

import pytest

from pfl_common.spec.messages import NOT_SINCE, OPENING
from pfl_server.sites import membership
from pfl_server.sites.membership import FORGOTTEN_SECONDS
from tests.server.support.federation import DESCRIPTION
from tests.server.support.scene import TASK, Scene


async def test_who_said_goodbye_is_not_away(scene: Scene) -> None:
    """Away is who is silent; who has left, or was silent for a week, has no certificate to be seen to."""
    fleet = scene.fleet
    assert ((3, 0, 0), ("a", "b", "c")) == (fleet.heard(), fleet.members())
    await fleet.leave("c")
    fleet.clock += 3600
    fleet.heartbeat("a", OPENING, 0)
    assert ((1, 1, 1), ("a", "b")) == (fleet.heard(), fleet.members())
    fleet.clock += FORGOTTEN_SECONDS - 1800
    assert ((0, 2, 1), ("a",)) == (fleet.heard(), fleet.members())
    await fleet.join("c", DESCRIPTION)
    assert ((1, 2, 0), ("a", "c")) == (fleet.heard(), fleet.members())


def test_descriptions_of_ten_thousand_sites_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for in turn: with room for fewer, each would be forgotten just before its turn."""
    texts, read = [f'{{"samples": {number}}}' for number in range(10_000)], list[str]()
    monkeypatch.setattr(membership.json, "loads", lambda text: (read.append(text), loads(text))[1])
    for _ in range(2):
        assert list(range(10_000)) == [membership._read_samples(text) for text in texts]
    assert texts == read


async def test_the_list_of_sites(scene: Scene) -> None:
    """Who is here, who is away, for how long, doing what."""
    scene.ask("a")
    await scene.take("a")
    scene.fleet.clock += 20
    waiting = asyncio.create_task(scene.fleet.next_task("b", (), wait=10))
    await asyncio.sleep(0)
    lines = {line.site: (line.state, line.doing) for line in scene.fleet.status().sites}
    assert {"a": ("away", "silent (train 1)"), "b": ("here", "waiting"), "c": ("away", "away")} == lines
    waiting.cancel()


async def test_a_goodbye_outlives_the_coordinator(scene: Scene) -> None:
    """Started again it knows who left on purpose, and when, and waits for no lease of that site."""
    await scene.fleet.leave("b")
    await scene.restart()
    assert (("a", "c"), (0, 2, 1)) == (scene.fleet.present(), scene.fleet.heard())
    line = scene.fleet.status().sites[1]
    assert ("away", "has left", "left") == (line.state, line.doing, line.phase)
    asked = scene.ask("b")
    await asyncio.sleep(0)
    assert (True, False) == (scene.fleet.expired("b"), asked.done())


async def test_a_goodbye_that_came_late_does_not_outlive_the_coordinator(scene: Scene) -> None:
    """A site that is heard after it, at work, is waited for in the next life too."""
    await scene.fleet.leave("a")
    scene.fleet.heartbeat("a", TASK.key, 1)
    assert "a" in scene.fleet.present()
    await scene.restart()
    assert {} == scene.books.journal.goodbyes()
    assert "a" in scene.fleet.present()


async def test_who_came_back_has_not_left(scene: Scene) -> None:
    """A goodbye counts until the site joins again, in every life of the coordinator."""
    await scene.fleet.leave("b")
    await scene.restart()
    await scene.fleet.join("b", DESCRIPTION)
    await scene.restart()
    assert (0, 3, 0) == scene.fleet.heard()
    assert {} == scene.books.journal.goodbyes()


async def test_who_was_not_heard_since_a_restart_is_not_said_to_be_here(scene: Scene) -> None:
    """When it was heard before nobody knows any more; drawing and leases give it its time all the same."""
    await scene.restart()
    fleet = scene.fleet
    scene.ask("a")
    await asyncio.sleep(0)
    fleet.clock += 10
    fleet.heartbeat("b", OPENING, 0)
    fleet.clock += 3
    waiting = asyncio.create_task(fleet.next_task("c", (), wait=60))
    await asyncio.sleep(0)
    assert (("a", "b", "c"), False) == (fleet.present(), fleet.expired("a"))
    assert (2, 1, 0) == fleet.heard()
    a, b, c = fleet.status().sites
    assert ("away", "away", "silent (train 1)", NOT_SINCE) == (a.state, a.phase, a.doing, a.seen_seconds)
    assert ("here", 3.0) == (b.state, b.seen_seconds)
    assert ("here", 0.0) == (c.state, c.seen_seconds)
    waiting.cancel()
    await scene.take("a")
    assert ("here", 0.0) == (fleet.status().sites[0].state, fleet.status().sites[0].seen_seconds)


async def test_a_goodbye_of_long_ago_is_said_to_be_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list counts from the goodbye, not from the coordinator's start."""
    said = time()
    monkeypatch.setattr(membership, "time", lambda: said)
    await scene.fleet.leave("b")
    monkeypatch.setattr(membership, "time", lambda: said + 3600)
    await scene.restart()
    assert 3600.0 == scene.fleet.status().sites[1].seen_seconds


async def test_who_has_left_was_heard_until_then(scene: Scene) -> None:
    """The list says when a site said goodbye, not when the coordinator was started."""
    assert None is await scene.fleet.next_task("a", (), wait=0)
    scene.fleet.clock += 100
    await scene.fleet.leave("a")
    scene.fleet.clock += 3
    (line, *_) = scene.fleet.status().sites
    assert ("away", "has left", 3.0) == (line.state, line.doing, line.seen_seconds)


async def test_a_closed_line_is_no_end_of_a_lease(scene: Scene) -> None:
    """At work and gone: away at once, and its task waits for it as after a crash; a site that called since is here."""
    scene.ask()
    await scene.take()
    held = asyncio.create_task(scene.fleet.linger("a", TASK.key, seconds=5))
    await asyncio.sleep(0)
    assert ("here", "working (train 1)") == (scene.line("a").state, scene.line("a").doing)
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    assert ("away", "line closed (train 1)") == (scene.line("a").state, scene.line("a").doing)
    assert "a" in scene.fleet.present()
    assert not scene.fleet.expired("a")
    assert TASK.key == (await scene.take()).key
    held = asyncio.create_task(scene.fleet.linger("a", TASK.key, seconds=5))
    await asyncio.sleep(0)
    scene.fleet.heartbeat("a", TASK.key, 3)
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    assert "here" == scene.line("a").state


async def test_a_site_that_is_stopped_is_away_and_waited_for(scene: Scene) -> None:
    """It says so itself: between two calls there is no line to close. A call that breaks off late changes nothing."""
    asked = scene.ask()
    await scene.take()
    held = asyncio.create_task(scene.fleet.linger("a", TASK.key, seconds=5))
    await asyncio.sleep(0)
    scene.fleet.heartbeat("a", TASK.key, 1)
    scene.fleet.pause("a")
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    assert ("away", "line closed (train 1)") == (scene.line("a").state, scene.line("a").doing)
    assert not asked.done()
    assert not scene.fleet.expired("a")
    assert {} == scene.books.journal.goodbyes()


async def test_the_roster_is_one_list_until_it_changes(scene: Scene) -> None:
    """A round of fifty does not look through ten thousand: who joined, was taken out or is back is in a new one."""
    fleet = scene.fleet
    roster = fleet.roster()
    assert roster is fleet.roster()
    await fleet.join("a", DESCRIPTION)
    assert roster is fleet.roster()
    await fleet.remove("b")
    assert ("a", "c") == fleet.roster()
    await fleet.join("b", DESCRIPTION)
    await fleet.join("bb", DESCRIPTION)
    assert ("a", "b", "bb", "c") == fleet.roster()


async def test_who_of_a_cohort_is_present(scene: Scene) -> None:
    """The same as who of all that are; a name that nobody has is not."""
    fleet = scene.fleet
    fleet.clock += 3600
    fleet.heartbeat("a", OPENING, 0)
    fleet.heartbeat("c", OPENING, 0)
    assert ("a", "c") == fleet.present()
    assert frozenset("a") == fleet.present_among(("a", "b", "nobody"))
