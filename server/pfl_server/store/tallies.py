"""A round's tally: hands updates from the spool to the sum in site order, or, under a robust rule, to that rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pfl_common.learning.method import Arrivals
from pfl_common.spec.run import ClientId
from pfl_common.tensors.robust_rules import Agreement
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from pfl_server.store.run_store import Books
from pfl_server.store.spool import Spool, Update


class Tally(Protocol):
    """What a round makes of its counted updates; its memory does not grow with the number of sites."""

    def add(self, client: ClientId, name: str) -> None:
        """Count one update; the caller keeps site order."""

    def changes(self) -> dict[ClientId, float]:
        """How far each counted update went from what its site was sent."""

    def leave_out(self, clients: Iterable[ClientId]) -> None:
        """Count as if these updates had never come."""

    def arrivals(self) -> Arrivals:
        """The counted updates; single ones are read from the spool only if they are asked for."""

    def close(self) -> None:
        """The round is over: let go of its updates, and with them of their keys, counted or not."""


class _Counting:
    """Knows which updates are counted."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._counted: dict[ClientId, Update] = {}

    def changes(self) -> dict[ClientId, float]:
        """How far each counted update went."""
        return {client: self._spool.change_of(update.id) for client, update in self._counted.items()}

    def close(self) -> None:
        """Let go of all updates and keys."""
        self._counted.clear()
        self._spool.let_letters_go()


class PlainTally(_Counting):
    """A sum in progress."""

    def __init__(self, spool: Spool, total: Sum | None = None) -> None:
        """With a `total` its memory is used again: the sum it held is over."""
        super().__init__(spool)
        self._sum = total or Sum()
        self._sum.begin()

    def add(self, client: ClientId, name: str) -> None:
        """Add one update, block by block."""
        self._add(client, self._spool.open(name))

    def _add(self, client: ClientId, update: Update) -> None:
        with update.source() as source:
            self._sum.add_parcel(source, update.manifest, update.header.groups)
        self._counted[client] = update

    def leave_out(self, clients: Iterable[ClientId]) -> None:
        """Begin the sum anew: what was added in floating point cannot be taken away to the bit."""
        left_out, counted = set(clients), self._counted
        self._counted = {}
        self._sum.begin()
        for client, update in counted.items():
            if client not in left_out:
                self._add(client, update)

    def arrivals(self) -> Arrivals:
        """The sum."""
        return Arrivals(self._sum, dict(self._counted))


class RobustTally(_Counting):
    """Updates that a robust rule reads together, once all are there."""

    def __init__(self, books: Books, sent: State) -> None:
        super().__init__(books.spool)
        self._spec, self._sent = books.spec, sent

    def add(self, client: ClientId, name: str) -> None:
        """Note one update; it is read at the end."""
        self._counted[client] = self._spool.open(name)

    def leave_out(self, clients: Iterable[ClientId]) -> None:
        """Nothing was read yet."""
        for client in clients:
            del self._counted[client]

    def arrivals(self) -> Arrivals:
        """What the rule makes of them."""
        updates = list(self._counted.values())
        changes = self.changes() if self._spec.robust == "norm-clip" else {}
        agreement = Agreement(
            self._spec.robust,
            updates,
            self._sent,
            share=self._spec.hostile_share,
            changes=list(changes.values()),
        )
        return Arrivals(agreement, dict(self._counted))


def open_tally(books: Books, sent: State, total: Sum | None = None) -> Tally:
    """A tally of the updates of a round that began from this state."""
    return PlainTally(books.spool, total) if books.spec.robust == "none" else RobustTally(books, sent)
