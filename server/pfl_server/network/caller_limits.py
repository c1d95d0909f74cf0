"""How much one caller may have open at once, and for how long: it must not take what all others need."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pfl_common.errors import Refused
from pfl_common.spec.run import ClientId
from pfl_server.network.rpc import Context

MOST_CALLS = 16
"""Calls of one site whose message is awaited, that are being answered, or whose answer it has not read. A site makes
three or four at a time; those of a line that broke unseen are there until it is noticed.
"""
MOST_STREAMS = 6
"""Transfers of one site. It has one each way, and those of a broken line for a while."""


class Places:
    """So many calls for each caller; the next is refused until one of them is over."""

    def __init__(self, most: int, of: str) -> None:
        self._most, self._of = most, of
        self._taken: Counter[str] = Counter()

    def take(self, who: str, context: Context) -> None:
        """Take a place for a caller until its call is over, which it is not before the last byte is out. Nobody in
        particular needs none.
        """
        if who and self._taken[who] >= self._most:
            raise Refused("too_many", f"more than {self._most} {self._of} at once; expected: fewer")
        self._taken[who] += 1
        context.add_done_callback(lambda _: self._give_back(who))  # type: ignore[arg-type] # any callable, in truth

    def _give_back(self, who: str) -> None:
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


@dataclass(eq=False)
class _Transfer:
    ending: asyncio.Timeout
    why: Refused | None = None


class Transfers:
    """The transfers under way: those of a site that the operator sends away end at once, not with their last byte."""

    def __init__(self) -> None:
        self._of: defaultdict[ClientId, set[_Transfer]] = defaultdict(set)

    @asynccontextmanager
    async def under_way(self, site: ClientId) -> AsyncIterator[None]:
        """A transfer of a site, from its first byte to its last."""
        transfer = _Transfer(asyncio.timeout(None))
        try:
            async with transfer.ending:
                self._of[site].add(transfer)
                yield
        except TimeoutError:
            if transfer.why is None:
                raise
            raise transfer.why from None
        finally:
            self._of[site].discard(transfer)
            if not self._of[site]:
                del self._of[site]

    def end(self, site: ClientId, why: Refused) -> None:
        """All of a site's, each with this answer."""
        now = asyncio.get_running_loop().time()
        for transfer in self._of.get(site, ()):
            if transfer.why is None:
                transfer.why = why
                transfer.ending.reschedule(now)
