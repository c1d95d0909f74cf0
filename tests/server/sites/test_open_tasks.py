"""What is awaited of whom, and what is answered when nothing is."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from pfl_common.errors import Refused
from pfl_server.sites.open_tasks import OpenTasks
from tests.server.support.scene import TASK, Scene


@dataclass(frozen=True)
class Task:
    """A task whose upload was promised so much."""

    client: str
    lacking: int


async def test_only_what_a_site_was_asked_is_awaited(scene: Scene) -> None:
    """An older task comes too late, and so does anything from a site without one; refusals are counted."""
    tasks, _ = scene.fleet.tasks, scene.ask()
    await scene.take()
    assert tasks.find("a") is tasks.awaited("a", TASK.key)
    for site, key in (("a", "000001-0-train"), ("b", TASK.key)):
        with pytest.raises(Refused) as refused:
            tasks.awaited(site, key)
        assert "late" == refused.value.code
    with pytest.raises(Refused, match=r"^not_joined.*stranger.*run-1"):
        tasks.awaited("stranger", TASK.key)
    assert {"late": 2, "not_joined": 1} == tasks.refusals


async def test_a_site_without_a_task_needs_no_patience(scene: Scene) -> None:
    """Sent away for want of room when it joined: there is no lease to renew."""
    scene.fleet.tasks.bear_with("a")
    scene.fleet.tasks.bear_with("stranger")
    assert scene.fleet.tasks.find("a") is None
    assert scene.fleet.tasks.find("stranger") is None


def test_disk_that_was_promised_to_the_others() -> None:
    """Each open task's upload but the one that asks; a site without a task was promised nothing, and one whose task is
    finished or was replaced nothing for that.
    """
    members = {site: SimpleNamespace(assigned=None) for site in "abcd"}
    ours, theirs, third, over = (
        Task(site, count) for site, count in zip("abcd", (1, 20, 300, 4000), strict=True)
    )
    tasks = OpenTasks("run", SimpleNamespace(find=members.get), None, lambda: 0.0)  # type: ignore[arg-type]
    with ExitStack() as open_:
        for task in (ours, theirs, third, over):
            open_.enter_context(tasks.opened(members[task.client], task))  # type: ignore[arg-type]
        members["d"].assigned = None
        assert (320, 301) == (tasks.promised(ours), tasks.promised(theirs))  # type: ignore[arg-type]
    assert 0 == tasks.promised(ours)  # type: ignore[arg-type]
    assert {None} == {member.assigned for member in members.values()}
    assert Counter() == tasks.refusals


def test_refusals_are_counted_by_their_code() -> None:
    """A stranger is one of them."""
    members = SimpleNamespace(find=lambda site: None)
    tasks = OpenTasks("run-1", members, None, lambda: 0.0)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=r"^not_joined: x.*run-1"):
        tasks.member("x")
    tasks.refuse("late", "words")
    assert {"not_joined": 1, "late": 1} == tasks.refusals
    assert tasks.find("x") is None
