"""Reports refused messages to the operator: the code, the words, the sender.

The first of a kind is said at once, in the log and among the events; what follows from the same caller is counted and
said in one line a minute. However many callers there are, neither grows without bound.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from pfl_common.errors import Refused
from pfl_common.printable import printable
from pfl_common.spec.messages import Event

log = structlog.get_logger("pfl.refusals")

Later: TypeAlias = Callable[[float, Callable[[], None]], object]
"""Calls something after so many seconds."""
_Key: TypeAlias = tuple[str, str, str]

APART_SECONDS = 60.0
MOST_APART = 8
"""So many sites, and as many strangers, are told apart at one time; all others are "several"."""
MOST_SHOWN = 5
"""Half of the events a page shows at first: a flood does not drive out what else has happened."""
LONGEST_WORDS = 300


@dataclass(frozen=True)
class Caller:
    """The sender of a refused message: the name its certificate proves, and its address."""

    address: str
    """Behind a proxy that of the proxy."""
    proven: str = ""

    @property
    def name(self) -> str:
        """A claim that nothing proves is no name."""
        return self.proven or "unknown"


@dataclass
class _Bout:
    """Repeated refusals of one caller with one code."""

    code: str
    caller: Caller
    words: str = ""
    at: float = 0.0
    times: int = 0
    logged: int = 0

    def log(self) -> None:
        """All since the last line, in one line."""
        log.warning(
            "refused again" if self.logged else "refused",
            code=self.code,
            site=self.caller.name,
            address=self.caller.address,
            words=self.words,
            times=self.times - self.logged,
        )
        self.logged = self.times

    def to_event(self) -> Event:
        """For the page, with how often so far."""
        often = f" ({self.times} times)" if self.times > 1 else ""
        words = f"refused ({self.code}), {self.caller.name} at {self.caller.address}: {self.words}{often}"
        return Event(self.at, "warning", words)


class Refusals:
    """Reports refusals, at most once a minute for each caller and code."""

    def __init__(self, clock: Callable[[], float] = time.time, later: Later | None = None) -> None:
        self._clock, self._later = clock, later or _call_later
        self._open: dict[_Key, _Bout] = {}
        self._ended: deque[_Bout] = deque(maxlen=MOST_SHOWN)

    def take(self, refused: Refused, caller: Caller) -> None:
        """A message was not taken."""
        key = _key(refused, caller)
        if key not in self._open and self._crowded(caller):
            caller = Caller("several addresses", caller.proven and "several sites")
            key = _key(refused, caller)
        bout = self._open.setdefault(key, _Bout(refused.code, caller))
        bout.words, bout.at = readable(refused.words), self._clock()
        bout.times += 1
        if bout.times == 1:
            bout.log()
            self._later(APART_SECONDS, lambda: self._sum_up(key))

    def newest(self) -> tuple[Event, ...]:
        """Newest first, a few."""
        bouts = sorted((*self._open.values(), *self._ended), key=lambda bout: -bout.at)
        return tuple(bout.to_event() for bout in bouts[:MOST_SHOWN])

    def _crowded(self, caller: Caller) -> bool:
        # Strangers cannot hide which sites are refused: the two are counted apart.
        alike = sum(bool(bout.caller.proven) == bool(caller.proven) for bout in self._open.values())
        return alike >= MOST_APART

    def _sum_up(self, key: _Key) -> None:
        bout = self._open[key]
        if bout.times == bout.logged:
            self._ended.append(self._open.pop(key))
            return
        bout.log()
        self._later(APART_SECONDS, lambda: self._sum_up(key))


def readable(words: str) -> str:
    """A peer's words may be among it: made one short line, for a terminal and a page."""
    # Cut first: a peer's words may be long, and this runs in the event loop.
    lines = (line.strip() for line in words[:LONGEST_WORDS].splitlines())
    return printable("; ".join(lines))[:LONGEST_WORDS]


def _key(refused: Refused, caller: Caller) -> _Key:
    """A site is one caller wherever it calls from."""
    return refused.code, caller.proven, "" if caller.proven else caller.address


def _call_later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
