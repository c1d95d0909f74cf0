"""The time a site may be silent with its task, and what renews it: progress, at a part of its own past rate at least.

A site that hangs but sends heartbeats is given up when its lease ends. So is one that crawls: what it says of itself
and what it sends has to go on at a part of the rate it had before, and to begin anew helps it a few times only.
"""

from __future__ import annotations

from dataclasses import dataclass

FRESH_STARTS = 3
"""How often one task's counters may begin at nothing again: one that was killed so often is no help."""
SLOWER = 5
"""A site may be so much slower than it was before: another program on its machine, a line at noon."""
FURTHER = 4
"""Its counter may go so much further than before: a later phase of a method may train more."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a site did one task: its counter at the end less the bytes of the download; seconds of work and upload."""

    progress: int
    seconds: float
    upload_seconds: float


@dataclass(slots=True)
class Lease:
    """The time a site may be silent. Only progress renews it."""

    renewed: float
    """When the site last made progress."""
    progress: int = -1
    received: int = 0
    """Bytes of its upload that have been counted as progress."""
    past: Pace | None = None
    """Of the site's last task that ended in an update; None: it has to prove nothing yet."""
    transfer_seconds: float = float("inf")
    """How long the whole download may take, and the whole upload, by their rate."""
    size: int = 0
    """Bytes of the download."""
    began: float = 0.0
    """When it came for its task first, or its download was made."""
    fetched: float | None = None
    """When the site had its download, by what was sent or by what it says."""
    fresh_starts: int = 0
    pace: Pace | None = None
    """How fast it was with this task, once its upload is whole."""
    _upload: tuple[int, float] | None = None
    """Size of its upload, and when it was offered for the first time."""

    def ask(self, now: float, *, again: bool) -> None:
        """It comes for its task. Asked again, the task renews nothing; but a site that was killed begins again at
        nothing, and its new progress is not measured by what it had.
        """
        if not again:
            self.begin(now)
            self.progress = -1
        elif self._start_afresh():
            self.progress = -1

    def begin(self, now: float) -> None:
        """From now on it has work to do: its task is called out, its download is made."""
        self.renewed = self.began = now

    def progress_to(self, progress: int, now: float) -> None:
        """It says how far it is."""
        if progress <= self.progress:
            return
        self.progress = progress
        if self.fetched is None and progress >= self.size:
            self.fetched = now
        good = self._fetches(progress, now) if self.fetched is None else self._works(progress, now)
        if good:
            self.renewed = now

    def grow_to(self, reached: int, now: float) -> None:
        """Its upload has reached so many bytes."""
        if reached > self.received:
            self.received = reached
            size, began = self._upload or (0, now)
            if reached * self.transfer_seconds >= size * (now - began):
                self.renewed = now

    def offer(self, size: int, now: float) -> None:
        """Its work is done, and its upload may come."""
        if self._upload is None:
            self._upload = size, now

    def store(self, now: float) -> None:
        """Its upload is whole."""
        if self._upload is not None and self.fetched is not None:
            offered = self._upload[1]
            self.pace = Pace(max(0, self.progress - self.size), offered - self.fetched, now - offered)

    def begin_upload_anew(self) -> None:
        """What has come of its upload is useless."""
        if self._start_afresh():
            self.received = 0

    def _start_afresh(self) -> bool:
        self.fresh_starts += 1
        return self.fresh_starts <= FRESH_STARTS

    def _fetches(self, progress: int, now: float) -> bool:
        """Whether its download comes at a rate at which it will ever be whole."""
        return progress * self.transfer_seconds >= self.size * (now - self.began)

    def _works(self, progress: int, now: float) -> bool:
        """Whether a site that has its download goes on as it did before: for as long as it took then any progress is
        good, afterwards a part of its rate is asked for.
        """
        if self.past is None or self.fetched is None or not self.past.progress:
            return True
        done, late = max(0, progress - self.size), now - self.fetched - self.past.seconds
        fast_enough = done * SLOWER * self.past.seconds >= self.past.progress * late
        return fast_enough and done <= FURTHER * self.past.progress
