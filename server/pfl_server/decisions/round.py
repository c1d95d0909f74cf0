"""One round as a state machine without clock, socket or tensor: events in, orders out.

Every site of the cohort settles once: its update arrived, or it is lost (a drawn drop-out, a refusal, a lease
that ended and the deadline are one and the same here). Updates are folded in site order, each as soon as all
sites before it have settled, so that the sum depends on the set of counted updates and not on who was faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pfl_common.spec.run import ClientId


@dataclass(frozen=True, slots=True)
class Arrived:
    """A verified update lies in the spool."""

    client: ClientId
    id: str


@dataclass(frozen=True, slots=True)
class Lost:
    """This site's update will not come."""

    client: ClientId
    reason: str


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The round's deadline has passed."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Add this update to the sum now."""

    client: ClientId
    id: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """This update comes too late or twice: it is not counted."""

    client: ClientId
    code: str


@dataclass(frozen=True, slots=True)
class Close:
    """All sites have settled and enough updates were counted."""

    counted: tuple[ClientId, ...]


@dataclass(frozen=True, slots=True)
class Abandon:
    """All sites have settled and too few updates were counted."""

    reason: str


Event: TypeAlias = Arrived | Lost | TimeUp
Order: TypeAlias = Fold | Refuse | Close | Abandon


class Round:
    """Tracks which sites are awaited in a round and answers each event with orders."""

    def __init__(self, cohort: Sequence[ClientId], *, quorum: int) -> None:
        self._order = sorted(set(cohort))
        self._quorum = quorum
        self._settled: dict[ClientId, str | None] = {}
        self._folded = 0
        self._over = False
        self.losses: dict[ClientId, str] = {}

    @property
    def awaited(self) -> tuple[ClientId, ...]:
        """Sites that have not settled yet."""
        return tuple(site for site in self._order if site not in self._settled)

    @property
    def counted(self) -> tuple[ClientId, ...]:
        """Sites whose update is, or will be, in the sum."""
        return tuple(site for site in self._order if self._settled.get(site) is not None)

    @property
    def has_quorum(self) -> bool:
        """Whether enough updates are here to close it."""
        return len(self.counted) >= max(1, self._quorum)

    def handle(self, event: Event) -> list[Order]:
        """Take one event. Close or Abandon comes once; after it updates are only refused."""
        match event:
            case Arrived(client, update):
                return self._arrived(client, update)
            case Lost(client, reason):
                self._lose(client, reason)
            case TimeUp():
                for client in self.awaited:
                    self._lose(client, "deadline")
        return self._advance()

    def exclude(self, sites: Iterable[ClientId], reason: str) -> Close | Abandon:
        """All have settled, and a look at all updates together does not take some of them: the verdict without them."""
        for site in sites:
            self._settled[site] = None
            self.losses[site] = reason
        return self._verdict()

    def _arrived(self, client: ClientId, update: str) -> list[Order]:
        if client not in self._order:
            return [Refuse(client, "not_in_cohort")]
        if client in self._settled or self._over:
            # The same update once more is a repeated message, not a second vote.
            again = self._settled.get(client) == update
            return [] if again else [Refuse(client, "late" if self._settled.get(client) is None else "twice")]
        self._settled[client] = update
        return self._advance()

    def _lose(self, client: ClientId, reason: str) -> None:
        if client in self.awaited and not self._over:
            self._settled[client] = None
            self.losses[client] = reason

    def _advance(self) -> list[Order]:
        if self._over:
            return []
        orders: list[Order] = []
        while self._folded < len(self._order) and self._order[self._folded] in self._settled:
            site = self._order[self._folded]
            update = self._settled[site]
            if update is not None:
                orders.append(Fold(site, update))
            self._folded += 1
        if not self.awaited:
            self._over = True
            orders.append(self._verdict())
        return orders

    def _verdict(self) -> Close | Abandon:
        if len(self.counted) >= self._quorum:
            return Close(self.counted)
        lost = ", ".join(f"{site} ({reason})" for site, reason in sorted(self.losses.items()))
        return Abandon(f"{len(self.counted)} of {self._quorum} needed updates; lost: {lost or 'none'}")
