"""Libraries log into our log, and none of them can fill a disk with one and the same line."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from pfl_common.app import library_logs
from pfl_common.app.library_logs import AGAIN_SECONDS, MOST_KINDS, LibraryLog


class Clock:
    """Stands until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def library(clock: Clock) -> Iterator[logging.Logger]:
    """A library's logger that is heard by ours alone."""
    logger, handler = logging.getLogger("some.library"), LibraryLog(clock)
    logger.addHandler(handler)
    logger.propagate = False
    yield logger
    logger.removeHandler(handler)
    logger.propagate = True


def test_the_same_again_is_counted(library: logging.Logger, clock: Clock) -> None:
    """A line a minute, which says how many there were meanwhile; another line is said at once."""
    with capture_logs() as log:
        for _ in range(1000):
            library.warning("out of patience with %s", "port 7480")
        library.error("another matter")
        clock.now += AGAIN_SECONDS
        library.warning("out of patience with %s", "port 7480")
    assert [
        ("out of patience with port 7480", 0),
        ("another matter", 0),
        ("out of patience with port 7480", 999),
    ] == [(line["words"], line["unsaid"]) for line in log]
    assert {"some.library"} == {line["library"] for line in log}


def test_lines_that_all_differ_are_bounded_too(library: logging.Logger, clock: Clock) -> None:
    """A peer's words may be in them: so many kinds are told apart, and what is over is made room for others."""
    with capture_logs() as log:
        for number in range(1000):
            library.warning("no request of ours: %d", number)
        assert MOST_KINDS + 1 == len(log)
        clock.now += AGAIN_SECONDS
        library.warning("later")
    assert "later" == log[-1]["words"]


def test_a_traceback_goes_with_what_is_unexpected(library: logging.Logger) -> None:
    """But not with a lack of descriptors, of which the words say all."""
    with capture_logs() as log:
        for error in (ValueError("a fault"), OSError(errno.EMFILE, "too many open files")):
            library.error("it failed: %s", error, exc_info=error)
        library.info("nothing of note")
    assert [True, False] == [bool(line["exc_info"]) for line in log]


def test_taken_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a program is set up."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    for _ in range(3):
        library_logs.take_over()
    assert [LibraryLog] == [type(handler) for handler in root.handlers]
