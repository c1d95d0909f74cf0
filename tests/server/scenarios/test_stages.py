"""How far each site is with its task: told to people, counted when it is lost, and timed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pfl_common.metric import Summed
from pfl_server.sites.assignment import SiteLost
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.service import Incoming
from tests.server.support.federation import DESCRIPTION
from tests.server.support.scene import TASK, Scene


def phases(fleet: Fleet) -> dict[str, str]:
    return {line.site: line.phase for line in fleet.status().sites}


def spent(fleet: Fleet) -> dict[str, Summed]:
    return {phase: summed for phase, summed in fleet._record.meter.seconds.items() if summed.count}


async def test_each_phase_of_a_task_takes_its_own_time(scene: Scene) -> None:
    """From the task to the last byte of its download, to the offer, to the last byte of the upload, to the receipt."""
    job, fleet = scene.ask(), scene.fleet
    assignment = await scene.take()
    fleet.clock += 1
    fleet.fetched("a", "0" * 64)  # other bytes than its own
    fleet.fetched("a", assignment.blob.digest)
    fleet.clock += 5
    fleet.fetched("a", assignment.blob.digest)  # once more: it is at work
    offer, raw = scene.prepare_offer()
    incoming = await fleet.offer("a", offer)
    assert isinstance(incoming, Incoming)
    fleet.clock += 1
    incoming.path.write_bytes(raw[:10])
    await fleet.offer("a", offer)  # its line broke: it goes on
    fleet.clock += 2
    incoming.path.write_bytes(raw)
    await fleet.stored("a", offer.key)
    await job
    expected = {"download": 1.0, "work": 5.0, "upload": 3.0, "verify": 0.0}
    assert {phase: Summed(1, seconds) for phase, seconds in expected.items()} == spent(fleet)


async def test_what_was_begun_before_a_restart_is_not_timed(scene: Scene) -> None:
    """Its beginning was not seen: only what follows is."""
    scene.ask()
    await scene.take()
    await scene.restart()
    scene.ask()
    await asyncio.sleep(0)
    offer, raw = scene.prepare_offer()
    await scene.send("a", offer, raw)
    assert {"upload", "verify"} == set(spent(scene.fleet))


async def test_the_phase_of_each_site(scene: Scene) -> None:
    """One word from a list, whatever else is said of it."""
    fleet = scene.fleet
    scene.ask("a")
    scene.ask("b")
    await asyncio.sleep(0)
    assert ("called", "called") == (phases(fleet)["a"], phases(fleet)["b"])
    await scene.take("a")
    assert "working" == phases(fleet)["a"]
    offer, _ = scene.prepare_offer("a")
    await fleet.offer("a", offer)
    assert "uploading" == phases(fleet)["a"]
    assert None is await fleet.next_task("c", (), wait=0)
    assert "waiting" == phases(fleet)["c"]
    await fleet.leave("c")
    fleet.clock += 100
    assert {"a": "away", "b": "away", "c": "left"} == phases(fleet)


@pytest.mark.parametrize("stage", ["called", "working", "uploading", "drawn"])
async def test_a_loss_says_how_far_the_site_was(scene: Scene, stage: str) -> None:
    """A site that trained and was drawn to drop out is told apart from one that fell silent at work."""
    job, fleet = scene.ask(task=replace(TASK, drop=stage == "drawn")), scene.fleet
    await asyncio.sleep(0)
    if stage != "called":
        await scene.take()
    if stage == "uploading":
        offer, _ = scene.prepare_offer()
        await fleet.offer("a", offer)
    if stage == "drawn":
        await fleet.decline("a", TASK.key, "dropped", "")
    else:
        fleet.give_up("a", "lease")
    with pytest.raises(SiteLost) as lost:
        await job
    assert stage == lost.value.stage


async def test_what_happens_to_sites_is_told(scene: Scene) -> None:
    """Who left and came back, who declined, who was given up; newest first."""
    fleet = scene.fleet
    await fleet.leave("b")
    await fleet.join("b", DESCRIPTION)
    await fleet.join("d", DESCRIPTION)
    declining, given_up = scene.ask("a"), scene.ask("c")
    await asyncio.sleep(0)
    await fleet.decline("a", TASK.key, "policy", "not\ntoday")
    fleet.give_up("c", "deadline")
    await asyncio.gather(declining, given_up, return_exceptions=True)
    told = [(event.level, event.words) for event in fleet._record.events.newest()]
    assert [
        ("warning", "c is no longer waited for (called, deadline)"),
        ("warning", "a declined 000001-1-train (policy): not today"),
        ("info", "d joined"),
        ("info", "b came back"),
        ("info", "b left"),
    ] == told
