"""The site's side of the line to the coordinator, as the daemon sees it.

Two things are Links: `transport.GrpcLink` over the network, and the loopback of `pfl simulate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pfl_common.messages import Assignment, Blob, Joined, Mark, Offer, Over, Receipt, Scores
from pfl_common.run import Description


class Link(Protocol):
    """Every call is safe to repeat; a call that cannot reach the coordinator raises `Unreachable`."""

    async def join(self, description: Description) -> Joined | None:
        """Register with what the data looks like; None while the run is still gathering sites: ask again."""

    async def next_task(self, marks: tuple[Mark, ...]) -> Assignment | Over | None:
        """Wait for work, saying which vault generations there are, newest first; None: nothing yet, ask again."""

    async def fetch(self, blob: Blob, into: Path) -> None:
        """Bring bytes into a file; what the file already holds is not brought again; the digest is checked."""

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        """Hand an upload in; goes on where an interrupted transfer stopped."""

    async def report(self, key: str, scores: Scores) -> None:
        """Hand in an evaluation."""

    async def decline(self, key: str, reason: str, words: str) -> None:
        """Say that a task will not be done, with a reason of `messages.DECLINES`, or "dropped" if so drawn."""

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far the task is (samples trained); False: the task is no longer wanted."""

    async def leave(self) -> None:
        """Say goodbye: this site takes no more tasks until it joins again."""


class Unreachable(Exception):
    """The coordinator does not answer; try again after a pause."""


class NotAdmitted(Exception):
    """The coordinator answered and does not take this site; the words say why and trying again will not help."""

    def __init__(self, words: str, code: str = "") -> None:
        self.code = code
        super().__init__(words)
