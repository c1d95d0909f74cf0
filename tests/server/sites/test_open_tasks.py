"""What is awaited of whom, and what is answered when nothing is."""

from __future__ import annotations

import pytest

from pfl_common.errors import Refused
from tests.server.support.scene import TASK, Scene


async def test_only_what_a_site_was_asked_is_awaited(scene: Scene) -> None:
    """An older task comes too late, and so does anything from a site without one; refusals are counted."""
    tasks, _ = scene.fleet.tasks, scene.ask()
    await scene.take()
    assert tasks.find("a") is tasks.awaited("a", TASK.key)
    for site, key in (("a", "000001-0-train"), ("b", TASK.key)):
        with pytest.raises(Refused) as refused:
            tasks.awaited(site, key)
        assert "late" == refused.value.code
    with pytest.raises(Refused, match="has not joined run run-1: join first"):
        tasks.awaited("stranger", TASK.key)
    assert {"late": 2, "not_joined": 1} == tasks.refusals


async def test_a_site_without_a_task_needs_no_patience(scene: Scene) -> None:
    """Sent away for want of room when it joined: there is no lease to renew."""
    scene.fleet.tasks.bear_with("a")
    scene.fleet.tasks.bear_with("stranger")
    assert scene.fleet.tasks.find("a") is None
    assert scene.fleet.tasks.find("stranger") is None
