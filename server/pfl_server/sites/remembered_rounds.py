"""Compares the rounds that a site remembers with those in the journal, and reports a difference."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from pfl_common.spec.messages import Mark
from pfl_server.sites.membership import Member

log = structlog.get_logger("pfl.fleet")


def newest_committed(marks: tuple[Mark, ...], committed: Mapping[int, int]) -> int:
    """The last committed round a site's vault holds: what an abandoned attempt left does not count."""
    return max((mark.round for mark in marks if committed.get(mark.round) == mark.attempt), default=0)


def compare(member: Member, marks: tuple[Mark, ...], committed: Mapping[int, int], *, since: int) -> None:
    """Say it when a site and this coordinator do not remember the same: one of the two was brought back from an old
    copy. The run goes on, with the newest state both of them know.
    """
    known = newest_committed(member.given, committed)
    newest, last = max((mark.round for mark in marks), default=0), max(committed, default=0)
    seen = {"site": member.site, "goes_on_from_round": since}
    if newest > last + 1 and newest != member.warned:
        member.warned = newest
        member.trouble = f"it is at round {newest} already: is this coordinator's folder an old copy?"
        log.warning("a site is further than this coordinator's folder", its_round=newest, ours=last, **seen)
    elif known > since and known != member.warned:
        member.warned = known
        member.trouble = f"came back without its state after round {known}"
        log.warning("a site came back with an old state folder, or a new one", counted_in=known, **seen)


def look_at_handing(writing: asyncio.Future[None]) -> None:
    """What was written down without being waited for: a failure is said."""
    if not writing.cancelled() and (error := writing.exception()) is not None:
        log.warning("what a site began from was not written down: the run cannot be replayed", why=str(error))
