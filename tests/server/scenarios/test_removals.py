"""The operator takes a site out of a run under way: what it was asked is lost, and the run goes on without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.run import Kind, Task
from pfl_server.sites.assignment import SiteLost
from pfl_server.sites.gathering import Reception
from tests.server.support.federation import DESCRIPTION, build_spec
from tests.server.support.scene import TASK, Scene

NEXT = Task(Kind.TRAIN, 1, 2, attempt=2)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A run of three sites."""
    one = Scene(tmp_path, build_spec())
    yield one
    await one.close()


async def test_what_it_was_asked_is_lost_at_once(scene: Scene) -> None:
    """Nobody waits for a lease; event and status say so, and it is no candidate any more."""
    asked = scene.ask()
    await scene.take()
    await scene.fleet.remove("a")
    with pytest.raises(SiteLost, match="removed"):
        await asked
    assert ("b", "c") == scene.fleet.roster()
    assert "a" not in scene.fleet.present()
    assert ("left", "removed by the operator") == (scene.line("a").phase, scene.line("a").doing)
    (event, *_) = scene.fleet.status().events
    assert ("warning", True) == (event.level, event.words.startswith("a was removed by the operator"))
    scene.fleet.heartbeat("a", TASK.key, 1)
    assert ("b", "c") == scene.fleet.roster(), "a last word that was on its way brings nobody back"
    assert "a" not in scene.fleet.present()
    await scene.fleet.remove("a")
    await scene.fleet.remove("nobody")


async def test_it_stays_out_after_a_restart(scene: Scene) -> None:
    """Also of an attempt that was opened with it: it is not asked, and its loss is known at once."""
    await scene.fleet.remove("a")
    await scene.restart()
    assert ("b", "c") == scene.fleet.roster()
    with pytest.raises(SiteLost, match="removed"):
        await scene.ask()


async def test_what_it_had_a_receipt_for_is_counted(scene: Scene) -> None:
    """A receipt is never taken back."""
    asked = scene.ask()
    await scene.take()
    await scene.send("a", *scene.prepare_offer())
    await scene.fleet.remove("a")
    assert "000001-1-a" == await asked


async def test_it_comes_back_by_joining(scene: Scene) -> None:
    """With a new invitation it joins as any site: a candidate from then on, also after a restart."""
    await scene.fleet.remove("a")
    await scene.fleet.join("a", DESCRIPTION)
    assert ("a", "b", "c") == scene.fleet.roster()
    await scene.restart()
    assert ("a", "b", "c") == scene.fleet.roster()
    scene.ask(task=NEXT)
    assert NEXT.key == (await scene.take()).task.key


async def test_before_the_run_nobody_waits_for_it() -> None:
    """A site that had come is forgotten; another one has to come in its place."""
    reception = Reception("fedavg")
    reception._gathered["a"] = guest = type("Gone", (), {"waiting": 0})()
    await reception.remove("a")
    assert ({}, 0) == (reception._gathered, guest.waiting)
    with pytest.raises(Refused):
        await reception.offer("a", None)
