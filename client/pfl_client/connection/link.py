"""The interface through which the daemon reaches its coordinator.

Two things are Links: `grpc_link.GrpcLink` over the network, and the loopback of `pfl simulate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from pfl_common.errors import Refused
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    Scores,
    Visited,
)
from pfl_common.spec.run import Description, Kind

INIT, CALLS = "init", "calls"
"""What crosses beside the parcels of tasks: the run's first model, and everything that is not a whole file."""


Tap: TypeAlias = Callable[[int, bytes], None]
"""Is shown each piece of a download as it comes, and where it begins; pieces of one stream are neighbours."""


class Traffic:
    """Counts the bytes of messages as they cross; repeated ones count each time."""

    def __init__(self) -> None:
        down, up = (*Kind, INIT, CALLS), (Kind.TRAIN, CALLS)
        ways = [("down", kind) for kind in down] + [("up", kind) for kind in up]
        self._crossed: dict[tuple[str, ...], int] = {(way, str(kind)): 0 for way, kind in ways}

    def come(self, kind: str, count: int) -> None:
        """So many bytes came down."""
        self._add("down", kind, count)

    def go(self, kind: str, count: int) -> None:
        """So many bytes went up."""
        self._add("up", kind, count)

    def carry(self, direction: str, count: int, *, parcel: tuple[str, int]) -> None:
        """A call or an answer crossed: what is a parcel in it counts as one, and the rest as calls."""
        kind, part = parcel
        self._add(direction, kind, part)
        self._add(direction, CALLS, count - part)

    def crossed(self) -> dict[tuple[str, ...], int]:
        """Bytes by direction and kind, as they are now; any thread may ask."""
        return self._crossed.copy()

    def in_files(self, direction: str) -> int:
        """Bytes that crossed in whole files."""
        counts = self.crossed().items()
        return sum(count for (way, kind), count in counts if way == direction and kind != CALLS)

    def _add(self, direction: str, kind: str, count: int) -> None:
        place = direction, kind
        self._crossed[place] = self._crossed.get(place, 0) + count


Marks: TypeAlias = tuple[tuple[Mark, ...], tuple[Mark, ...]]
"""The generations of a site's own state, newest first: of this run, and of the one before it."""
Announce: TypeAlias = Callable[[Callable[[], None]], None]


@dataclass(frozen=True)
class HandedIn:
    """The answer to a task that was handed in with one call."""

    receipt: Receipt
    next: Assignment | Over | None
    """What to do now, if it was known soon enough; None: ask."""
    held_seconds: float
    """How long the coordinator waited for that."""


class Link(Protocol):
    """The calls a site can make. Every call is safe to repeat; one that cannot reach the coordinator raises
    `Unreachable`.
    """

    async def join(self, description: Description) -> Joined | Gathering | None:
        """Register with what the data looks like; None while the run is still gathering sites: ask again."""

    async def visit(self) -> Visited | None:
        """The newest shared state, for a site that takes part in no round; None: there is none yet, ask again."""

    async def next_task(
        self, marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        """Wait for work, saying which vault generations there are, newest first, of this run and of the one before it;
        None: nothing yet, ask again.
        """

    async def fetch(
        self,
        blob: Blob,
        into: Path,
        *,
        kind: str = INIT,
        by: Digests = FIRST,
        tap: Tap | None = None,
    ) -> None:
        """Bring bytes into a file; what the file already holds is not brought again; the digest, of the hash `by`, is
        checked. Their `kind` is that of their task. `tap` is shown what comes now, before it is known to be whole.
        """

    def take_beside(self, blob: Blob, by: Digests = FIRST) -> bytes:
        """All of a download's bytes that came with its task, of this digest; empty if they have to be fetched."""

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        """Hand an upload in; goes on where an interrupted transfer stopped."""

    async def hand_in(
        self, offer: Offer, parcel: Path, scores: Scores, *, marks: Marks, announce: Announce
    ) -> HandedIn | None:
        """An upload, the evaluation of its task and the question for the next one in a single call. `announce` lists
        the upload, and with it what it is given, before anything is sent. None: nothing was sent that way, or nothing
        came of it; what it stands for goes on with single calls.
        """

    async def report(self, key: str, scores: Scores) -> None:
        """Hand in an evaluation."""

    async def decline(self, key: str, reason: str, words: str) -> None:
        """Say that a task will not be done, with a reason of `messages.DECLINES`, or "dropped" if so drawn."""

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far the task is (samples trained); False: the task is no longer wanted."""

    async def pause(self) -> None:
        """Say that this site stops and will come back: its task waits for it."""

    async def leave(self) -> None:
        """Say goodbye: this site takes no more tasks until it joins again."""


class Unreachable(Exception):
    """The coordinator does not answer; try again after a pause."""


class NotAdmitted(Exception):
    """The coordinator answered and refuses this site; the text says why, and trying again will not help."""

    def __init__(self, words: str, code: str = "") -> None:
        self.code = code
        super().__init__(words)


def lacks_room(error: Exception) -> str:
    """The coordinator's words, if it only has no room on its disk: it will take the same later."""
    refused = error if isinstance(error, Refused | NotAdmitted) else error.__cause__
    lacking = isinstance(refused, Refused | NotAdmitted) and refused.code == "no_room"
    return str(refused) if lacking else ""
