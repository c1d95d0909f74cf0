"""Decides which sites a round need not wait for: those much slower than most, and those lost again and again.

Counts follow from the attempts in the journal, so a restarted coordinator counts the same. Times are kept in memory
alone: after a restart every site is one whose time is not known yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import median
from types import MappingProxyType
from typing import cast

from pfl_common.spec.run import ClientId
from pfl_server.decisions.sampling import Draw

LOST = 3
"""After so many losses a site is set aside until it delivers; what it delivers in between makes up for one each."""
REST = 8
"""A site that is set aside is waited for again when the run has gone on for so many times as long as it was waited for
in vain: so it costs at most a ninth of the run's time, however short the rounds are.
"""
LASTING = frozenset({"policy", "too_few_samples", "wrong_shape"})
"""Reasons that stay true as long as nobody changes something at the site: one of them is enough."""
TIMES_KEPT = 5
SLOWEST = 10
"""A site's own past counts up to so many medians; a site whose time is not known is taken for one as slow."""


class Losses:
    """How often each site was lost that has not made up for it."""

    def __init__(self) -> None:
        self._score: dict[ClientId, int] = {}
        """None of a site that has made up for all: most have, and each round looks through the others."""
        self._reasons: dict[ClientId, str] = {}
        self._resting: dict[ClientId, float] = {}
        """Until when nobody waits for a site that is set aside."""

    def recall(self, rows: Iterable[Mapping[str, object]], *, rest_until: float = 0.0) -> None:
        """The attempts of a journal, in their order. It does not say for how long sites were waited for in vain: those
        set aside rest until then.
        """
        for row in rows:
            if row["status"] in ("committed", "abandoned"):
                self.take(cast(list[ClientId], row["cohort"]), cast(dict[ClientId, str], row["losses"]))
        self._resting = dict.fromkeys(self.aside(), rest_until)

    def take(
        self,
        cohort: Iterable[ClientId],
        losses: Mapping[ClientId, str],
        *,
        held: Mapping[ClientId, float] = MappingProxyType({}),
        now: float = 0.0,
    ) -> list[ClientId]:
        """One more attempt has ended; gives the sites set aside from now on. Drawn drop-outs have delivered. `held`
        says for how many seconds a site was waited for in vain.
        """
        before = self.aside()
        for site, seconds in held.items():
            self._resting[site] = max(self._resting.get(site, 0.0), now + REST * seconds)
        for site in cohort:
            reason = losses.get(site, "dropped")
            if reason == "dropped":
                self._deliver(site)
            else:
                self._lose(site, reason)
        return sorted(self.aside() - before)

    def lost(self) -> dict[ClientId, str]:
        """Sites that were lost when they were asked last, and why."""
        return dict(self._reasons)

    def lost_to(self, reason: str) -> frozenset[ClientId]:
        """Those of them that were lost for this reason."""
        return frozenset(site for site, why in self._reasons.items() if why == reason)

    def aside(self) -> frozenset[ClientId]:
        """Sites that no quorum counts on."""
        return frozenset(site for site, score in self._score.items() if score >= LOST)

    def tried(self, here: AbstractSet[ClientId], now: float) -> frozenset[ClientId]:
        """Those of them that this attempt waits for all the same: a slow site that comes back needs a round that waits
        for it, or it would never deliver. Only if it is here: nothing can come from one that is away.
        """
        return frozenset(site for site in self.aside() & here if now >= self._resting.get(site, 0.0))

    def doubted(self) -> frozenset[ClientId]:
        """Sites that were lost when they were asked last: unless they are tried, they are given no time that others do
        not need.
        """
        return frozenset(self._reasons)

    def _deliver(self, site: ClientId) -> None:
        left = self._score.pop(site, 0) - 1
        if left > 0:
            self._score[site] = left
        self._reasons.pop(site, None)
        self._resting.pop(site, None)

    def _lose(self, site: ClientId, reason: str) -> None:
        self._score[site] = LOST if reason in LASTING else min(LOST, self._score.get(site, 0) + 1)
        self._reasons[site] = reason


def leave_out(draw: Draw, aside: Collection[ClientId]) -> frozenset[ClientId]:
    """Sites of a cohort that its quorum does not count on: those set aside, if they are fewer than half of the expected
    and two others are left. Else it counts on all: a run of one site is no federation.
    """
    expected = set(draw.cohort) - draw.drops
    out = expected & set(aside)
    return frozenset(out) if 2 * len(out) < len(expected) and len(expected) - len(out) > 1 else frozenset()


class Times:
    """How long each site took for its last tasks, from the opening of an attempt to its update."""

    def __init__(self) -> None:
        self._seconds: dict[ClientId, deque[float]] = {}

    def add(self, site: ClientId, seconds: float) -> None:
        """Its update is here."""
        self._seconds.setdefault(site, deque(maxlen=TIMES_KEPT)).append(seconds)

    def allow(self, site: ClientId, *, times: float, usual: float, doubted: bool = False) -> float:
        """How long it may take, where most take the `usual` time: so many times that, or as many times its own."""
        unknown = usual if doubted else float("inf")
        own = median(self._seconds[site]) if site in self._seconds else unknown
        return times * min(max(own, usual), SLOWEST * usual)


def usual_time(seconds: Sequence[float]) -> float:
    """The median of how long the sites took that have delivered."""
    return median(seconds)
