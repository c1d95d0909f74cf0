"""Adds verified updates in site order, one at a time, and releases each at once."""

from __future__ import annotations

from pfl_common.learning.method import Arrivals
from pfl_common.spec.run import ClientId
from pfl_common.tensors.summing import Sum
from pfl_server.store.spool import Spool, Update


class PlainTally:
    """A round's sum in progress; its memory does not grow with the number of sites."""

    def __init__(self, spool: Spool, total: Sum | None = None) -> None:
        """With a `total` its memory is used again: the sum it held is over."""
        self._spool, self._sum = spool, total or Sum()
        self._sum.begin()
        self._counted: dict[ClientId, Update] = {}

    def add(self, client: ClientId, name: str) -> None:
        """Add one update, block by block; the caller keeps site order."""
        update = self._spool.open(name)
        with update.source() as source:
            self._sum.add_parcel(source, update.manifest, update.header.groups)
        self._counted[client] = update

    def arrivals(self) -> Arrivals:
        """The counted updates; single ones are read from the spool only if the method asks for them."""
        return Arrivals(self._sum, dict(self._counted))

    def close(self) -> None:
        """The round is over: let go of its updates, and with them of their keys, counted or not."""
        self._counted.clear()
        self._spool.let_letters_go()
