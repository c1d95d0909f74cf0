"""What a site remembers of a run, held against the journal; everything here is numbers of rounds and attempts."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from pfl_common.spec.messages import Mark
from pfl_server.sites.membership import Member
from pfl_server.sites.remembered_rounds import compare, look_at_handing, newest_committed

COMMITTED = {1: 1, 2: 3, 3: 1}
"""The attempt that each round was committed in."""


def test_an_abandoned_attempt_does_not_count() -> None:
    """Round 2 was committed in its third attempt; what a site has of the second is of no use."""
    assert 1 == newest_committed((Mark(2, 2), Mark(1, 1)), COMMITTED)
    assert 2 == newest_committed((Mark(2, 3), Mark(1, 1)), COMMITTED)
    assert 0 == newest_committed((Mark(4, 1),), COMMITTED)
    assert 0 == newest_committed((), COMMITTED)


def test_both_remember_the_same() -> None:
    """A site at most one round ahead had its update counted in a round that was not committed: nothing is said."""
    member = Member("a", 0.0, given=(Mark(3, 1),))
    with capture_logs() as said:
        compare(member, (Mark(3, 1),), COMMITTED, since=3)
        compare(member, (Mark(4, 1), Mark(3, 1)), COMMITTED, since=3)
    assert ([], "", 0) == (said, member.trouble, member.warned)


def test_a_site_that_is_further() -> None:
    """Round 5 after a journal that ends with 3: this coordinator's folder is an old copy. Said once."""
    member = Member("a", 0.0)
    with capture_logs() as said:
        for _ in range(2):
            compare(member, (Mark(5, 1),), COMMITTED, since=0)
    (line,) = said
    assert (5, 3, 0, "a") == (line["its_round"], line["ours"], line["goes_on_from_round"], line["site"])
    assert member.trouble.startswith("it is at round 5 already")


def test_a_site_that_came_back_older() -> None:
    """Its update was counted in round 3, it goes on from round 1: its folder is an old copy. Said once."""
    member = Member("a", 0.0, given=(Mark(3, 1), Mark(1, 1)))
    with capture_logs() as said:
        for _ in range(2):
            compare(member, (Mark(1, 1),), COMMITTED, since=1)
    assert [3] == [line["counted_in"] for line in said]
    assert "round 3" in member.trouble


def test_a_receipt_of_an_abandoned_attempt_is_no_loss() -> None:
    """Nothing of the site's was counted in round 2, so it lacks nothing."""
    member = Member("a", 0.0, given=(Mark(2, 2), Mark(1, 1)))
    with capture_logs() as said:
        compare(member, (Mark(1, 1),), COMMITTED, since=1)
    assert ([], "") == (said, member.trouble)


@pytest.mark.parametrize("end", ["written", "failed", "cancelled"])
async def test_only_a_failure_to_write_is_said(end: str) -> None:
    """A coordinator that stops cancels what it was writing; that is no failure."""
    writing = asyncio.get_running_loop().create_future()
    if end == "cancelled":
        writing.cancel()
    elif end == "failed":
        writing.set_exception(OSError("disk is full"))
    else:
        writing.set_result(None)
    with capture_logs() as said:
        look_at_handing(writing)
    assert (["disk is full"] if end == "failed" else []) == [line["why"] for line in said]
