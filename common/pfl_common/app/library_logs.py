"""What libraries log goes into our own log, and the same again at most once a minute.

asyncio writes a traceback for each connection that it cannot accept, two thousand in a second: a stranger would fill
the disk with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

import structlog

from pfl_common.files.full import is_crowded

AGAIN_SECONDS = 60.0
MOST_KINDS = 64
"""Told apart at one time; what else comes is one kind."""
LONGEST_KIND, LONGEST_WORDS = 80, 500

log = structlog.get_logger("pfl.library")

_Kind = tuple[str, str]


class LibraryLog(logging.Handler):
    """Passes a library's warnings and errors on; what is said again meanwhile is counted."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._said: dict[_Kind, float] = {}
        self._unsaid: dict[_Kind, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One line of a library."""
        words = record.getMessage()
        kind = self._kind_of(record.name, words.partition("\n")[0][:LONGEST_KIND])
        now = self._clock()
        if now - self._said.get(kind, float("-inf")) < AGAIN_SECONDS:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return
        self._said[kind] = now
        error = record.exc_info[1] if record.exc_info else None
        # Of descriptors that are lacking the words say all; what is unexpected has its traceback.
        trace = None if error is None or is_crowded(error) else error
        log.warning(
            "a library says",
            library=record.name,
            words=words[:LONGEST_WORDS],
            unsaid=self._unsaid.pop(kind, 0),
            exc_info=trace,
        )

    def _kind_of(self, name: str, words: str) -> _Kind:
        kind = (name, words)
        if kind not in self._said and len(self._said) >= MOST_KINDS:
            old = [known for known, at in self._said.items() if self._clock() - at >= AGAIN_SECONDS]
            for known in old:
                del self._said[known]
            return kind if old else ("", "")
        return kind


def take_over() -> None:
    """Let this process's libraries log by one of these alone."""
    root = logging.getLogger()
    if not any(isinstance(handler, LibraryLog) for handler in root.handlers):
        root.addHandler(LibraryLog())
