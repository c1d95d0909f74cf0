"""The calls that sites and the operator can make, as an interface that transports call.

Two things call a Desk: the gRPC `network.server`, which knows the site from its certificate, and the loopback of
`pfl simulate`. There are two Desks, one after the other: `gathering.Reception` and, once the run is frozen,
`fleet.Fleet`. The Service, which is `run.host.RunHost`, knows whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pfl_common.spec.messages import (
    Assignment,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    RunStatus,
    Scores,
    Visited,
)
from pfl_common.spec.run import ClientId, Description


@dataclass
class Incoming:
    """A partial upload: write to `path` from `offset` on; bytes beyond that have no meaning."""

    path: Path
    offset: int
    size: int
    came: int = 0
    """Bytes that came after the offset."""
    tap: Callable[[int, bytes], None] | None = None
    """Shown each frame that was written, and where it begins."""

    @property
    def reached(self) -> int:
        """How far it is."""
        return self.offset + self.came

    def close(self) -> None:
        """Nobody wants it any more: a stream that begins now finds no folder to make its file in."""
        self.path = self.path.parent / "over" / self.path.name


class Desk(Protocol):
    """The coordinator's answers to sites. Each call raises `errors.Refused`, with a code from a fixed list, for a
    request it does not accept.
    """

    async def join(self, site: ClientId, description: Description) -> Joined | Gathering | None:
        """Register a site; None while the run still gathers (the transport answers "ask again")."""

    async def visit(self, site: ClientId) -> Visited | None:
        """Give a site that takes part in no round the newest shared state; None while there is none."""

    async def next_task(
        self, site: ClientId, marks: tuple[Mark, ...], *, wait: float, before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        """Up to `wait` seconds for work for this site."""

    def blob(self, site: ClientId, digest: str) -> Path:
        """The file with these bytes, if they are for all sites or for this one."""

    def fetched(self, site: ClientId, digest: str) -> None:
        """A site has been sent the last of these bytes."""

    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        """Reserve room for an upload, or repeat the receipt of one that is already here."""

    async def stored(self, site: ClientId, key: str) -> Receipt:
        """All bytes of an offered upload are in its file: verify, keep, answer."""

    async def report(self, site: ClientId, key: str, scores: Scores, *, alone: bool = True) -> None:
        """Take an evaluation; one that is not alone comes with its task's update, and is written down with that."""

    async def decline(self, site: ClientId, key: str, reason: str, words: str) -> None:
        """A site will not do a task."""

    def heartbeat(self, site: ClientId, key: str, progress: int) -> bool:
        """A site is at work; False: no longer wanted."""

    async def linger(self, site: ClientId, key: str, *, seconds: float) -> None:
        """Hold a site's call so long while it is at work: that its line closes is then known at once."""

    def pause(self, site: ClientId) -> None:
        """A site is stopped and will come back: it is away, and its task waits for it."""

    async def leave(self, site: ClientId) -> None:
        """A site goes."""


class Service(Protocol):
    """What a transport holds: the Desk of the moment, and the operator's calls."""

    @property
    def desk(self) -> Desk:
        """Who answers the sites now; another one when the run has begun, so each call asks anew."""

    def status(self) -> RunStatus:
        """The run at a glance (operator)."""

    def stop(self) -> None:
        """End the run in good order after this round (operator)."""

    async def remove(self, site: ClientId) -> None:
        """Go on without a site (operator)."""
