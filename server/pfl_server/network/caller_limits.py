"""How much one caller may have open at once: it must not take what all others need."""

from __future__ import annotations

from collections import Counter

from pfl_common.errors import Refused
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
