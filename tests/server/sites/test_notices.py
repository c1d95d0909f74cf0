"""What outlasts the gathering: who was not taken and why, and a failure until all have heard of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.messages import RunStatus
from pfl_server.sites.notices import MOST_REFUSED, Notices
from tests.server.support.federation import DESCRIPTION

SEEN = RunStatus("run-1", "fedavg", "running", 1, 2, 0, words="as it was")


def turn_away(notices: Notices, site: str, code: str = "classes") -> None:
    """A site is refused while it joins."""
    with pytest.raises(Refused), notices.joining(site, DESCRIPTION):
        raise Refused(code, f"{site} is unfit")


def test_a_site_that_is_not_taken_is_told_of_until_it_is() -> None:
    """Only when its data are the reason; and of not too many."""
    notices = Notices()
    turn_away(notices, "b")
    turn_away(notices, "a")
    turn_away(notices, "c", "no_room")
    assert {"a": "a is unfit", "b": "b is unfit"} == notices.add_to(SEEN).refused
    with notices.joining("a", replace(DESCRIPTION, samples=11)):
        pass
    assert ["b"] == list(notices.add_to(SEEN).refused)
    for number in range(MOST_REFUSED):
        turn_away(notices, f"more-{number}")
    assert MOST_REFUSED == len(notices.add_to(SEEN).refused)


async def test_a_failure_is_waited_with_until_all_have_heard() -> None:
    """One joins again and is told, one says goodbye, one has said so before; no wait is longer than it may be."""
    notices = Notices()
    for site in "abc":
        notices.gathered(site)
    notices.left("c")
    notices.check_not_ended("a")
    assert ("running", "as it was") == (notices.add_to(SEEN).status, notices.add_to(SEEN).words)
    notices.end("failed", "no classes", level="error")
    assert ("failed", "no classes") == (notices.add_to(SEEN).status, notices.add_to(SEEN).words)
    waiting = asyncio.create_task(notices.farewell(100))
    with pytest.raises(Refused, match="no classes"):
        notices.check_not_ended("a")
    await notices.farewell(0)
    assert not waiting.done()
    notices.left("b")
    await asyncio.wait_for(waiting, 10)


async def test_a_full_disk_is_in_the_status() -> None:
    """Before what the run says of itself."""
    notices = Notices()
    notices.room.lack("an update of a needs more")
    assert "an update of a needs more" in notices.add_to(SEEN).words
    notices.room.relieve()
    assert "as it was" == notices.add_to(SEEN).words
