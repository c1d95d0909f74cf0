"""The one thread that writes a journal; requests made at the same time share a commit.

While a transaction waits for the disk, others ask; all they asked together is the next transaction. What need not be
on disk at once waits a moment for such company. Nobody has an answer before what was asked is on disk, and a read sees
all that was asked to be written before it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from pfl_common.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound="Kept")

Outcome: TypeAlias = tuple[Any, BaseException | None]  # Any: whatever was asked for
"""What a request gives, or the error that ended it."""


class Page:
    """One transaction, through which requests read and write."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._due: list[Callable[[], None]] = []
        self.has_written = False

    def write(self, statement: str, *values: object) -> None:
        """One statement that changes something."""
        self.has_written = True
        self._db.execute(statement, values)

    def rows(
        self, statement: str, *values: object
    ) -> list[tuple[Any, ...]]:  # a column is what its table says
        """All that a statement finds."""
        return self._db.execute(statement, values).fetchall()

    def afterwards(self, call: Callable[[], None]) -> None:
        """Call this when the transaction is on disk, before anybody has an answer; never if it fails."""
        self._due.append(call)

    def settle(self) -> None:
        """The transaction is on disk."""
        for call in self._due:
            call()

    def attempt(self, work: Callable[[Page], Any]) -> Outcome:
        """Do one of several requests; if it fails, it is undone and the others are untouched."""
        due = len(self._due)
        self._db.execute("savepoint attempt")
        try:
            done = work(self)
        except Exception as error:
            # A full disk undoes the whole transaction by itself: then nothing is left to go back to.
            if not self._db.in_transaction:
                raise
            self._db.execute("rollback to attempt")
            self._db.execute("release attempt")
            del self._due[due:]
            return None, error
        self._db.execute("release attempt")
        return done, None


LATER_SECONDS = 0.02
"""How long a request waits for others that asks to be written with them."""


@dataclass(frozen=True)
class _Deed:
    """What is to be done, and who waits for it."""

    work: Callable[[Page], Any]
    answer: Future[Any] | asyncio.Future[Any]
    later: bool = False
    loop: asyncio.AbstractEventLoop | None = None
    """In which the answer is waited for, if it is in one."""


class Scribe:
    """The thread that owns a connection to the journal; nothing else uses that connection. Where no disk is waited for
    (`prompt`) there is no thread: all is done by whoever asks, which takes less time than the way to another.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        *,
        prompt: bool = False,
        prepare: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        """`prepare` is called once something was written: a journal that is only read stays as it is."""
        self._db, self._prepare = db, prepare
        self._asked: SimpleQueue[_Deed | None] = SimpleQueue()
        self._door, self._closed = threading.Lock(), False
        self._thread: threading.Thread | None = None
        self._owed: list[_Deed] = []
        """Without a thread: what waits for company."""
        self._timed: asyncio.AbstractEventLoop | None = None
        """The event loop that will see to it."""
        if not prompt:
            self._thread = threading.Thread(target=self._write_on, name="journal", daemon=True)
            self._thread.start()

    def ask(self, work: Callable[[Page], T], *, later: bool = False) -> Future[T]:
        """Have something read or written; a caller that is cancelled while it waits cannot take the request back. Later
        means with what others ask, or by itself after a moment.
        """
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()
        self._take(_Deed(work, answer, later))
        return answer

    def ask_in_loop(self, work: Callable[[Page], T], *, later: bool = False) -> asyncio.Future[T]:
        """The same for who waits in an event loop."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._take(_Deed(work, answer, later, loop))
        return answer

    def _take(self, deed: _Deed) -> None:
        with self._door:
            if self._closed:
                raise StateError("the journal is closed", expected="it to be open while its run is played")
            if self._thread is not None:
                self._asked.put(deed)
            elif deed.later and deed.loop is not None:
                self._owe(deed, deed.loop)
            else:
                self._pay(deed)

    def _owe(self, deed: _Deed, loop: asyncio.AbstractEventLoop) -> None:
        # One timer at a time: what is owed once an earlier debt was paid may be paid sooner than it has to be.
        if self._timed is not loop:
            self._timed = loop
            loop.call_later(LATER_SECONDS, self._pay_alone)
        self._owed.append(deed)

    def _pay(self, *deeds: _Deed) -> None:
        owed, self._owed = self._owed, []
        if owed or deeds:
            self._write([*owed, *deeds])

    def _pay_alone(self) -> None:
        with self._door:
            self._timed = None
            if not self._closed:
                self._pay()

    def close(self) -> None:
        """Write what was asked so far, then no more; a second time does nothing."""
        with self._door:
            closing, self._closed = not self._closed, True
            if closing and self._thread is None:
                self._pay()
                self._end()
            elif closing:
                self._asked.put(None)
        # A journal nobody closed is closed when its memory is let go of, and that may happen in any thread.
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _write_on(self) -> None:
        while self._turn():
            pass
        self._end()

    def _end(self) -> None:
        # Closed, it is one file, to be copied, and read where nobody may write. A reader may be in the way of that.
        with suppress(sqlite3.Error):
            self._db.execute("pragma journal_mode=delete")
        self._db.close()

    def _turn(self) -> bool:
        """One transaction with all that is asked by now; whether there will be another."""
        asked = self._gather()
        while not self._asked.empty():
            asked.append(self._asked.get())
        if deeds := [deed for deed in asked if deed is not None]:
            self._write(deeds)
        return None not in asked

    def _gather(self) -> list[_Deed | None]:
        """What begins a transaction: the first request that does not wait for others, and those that have."""
        asked, end = [self._asked.get()], monotonic() + LATER_SECONDS
        while (last := asked[-1]) is not None and last.later:
            try:
                asked.append(self._asked.get(timeout=max(0.0, end - monotonic())))
            except Empty:
                break
        return asked

    def _write(self, deeds: list[_Deed]) -> None:
        try:
            page, outcomes = self._do(deeds)
            self._db.execute("commit")
        except BaseException as error:  # told to the callers: they must not wait for ever
            if self._db.in_transaction:
                self._db.rollback()
            outcomes = [(None, error)] * len(deeds)
        else:
            page.settle()
            if page.has_written and self._prepare is not None:
                self._prepare(self._db)
                self._prepare = None
        _tell(deeds, outcomes)

    def _do(self, deeds: list[_Deed]) -> tuple[Page, list[Outcome]]:
        """One transaction, to be committed. If a request fails, all are done once more, each so that it alone can be
        undone, which takes twice as many statements.
        """
        page = Page(self._db)
        self._db.execute("begin")
        try:
            return page, [(deed.work(page), None) for deed in deeds]
        except Exception:
            # A full disk undoes the whole transaction by itself: then all have failed.
            if not self._db.in_transaction:
                raise
        self._db.rollback()
        page = Page(self._db)
        self._db.execute("begin")
        return page, [page.attempt(deed.work) for deed in deeds]


def _tell(deeds: list[_Deed], outcomes: list[Outcome]) -> None:
    """Answer everybody; who waits in another thread's event loop, in one turn of that."""
    here = _running_loop()
    elsewhere: dict[asyncio.AbstractEventLoop, list[tuple[_Deed, Outcome]]] = {}
    for deed, outcome in zip(deeds, outcomes, strict=True):
        if deed.loop is None or deed.loop is here:
            _answer(deed, outcome)
        else:
            elsewhere.setdefault(deed.loop, []).append((deed, outcome))
    for loop, told in elsewhere.items():
        with suppress(RuntimeError):  # it is closed, and nobody waits there any more
            loop.call_soon_threadsafe(_answer_all, told)


def _answer_all(told: list[tuple[_Deed, Outcome]]) -> None:
    for deed, outcome in told:
        _answer(deed, outcome)


def _answer(deed: _Deed, outcome: Outcome) -> None:
    done, error = outcome
    if deed.answer.done():  # its caller was cancelled
        return
    if error is None:
        deed.answer.set_result(done)
    else:
        deed.answer.set_exception(error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Kept(Protocol):
    """An object whose data a scribe writes."""

    scribe: Scribe


class Asked(Generic[P, T]):
    """A request to a scribe: call it to wait for the answer, or await its `soon` in an event loop."""

    def __init__(self, kept: Kept, work: Callable[Concatenate[Any, Page, P], T]) -> None:  # Any: its class
        self._kept, self._work = kept, work

    def __call__(self, *words: P.args, **named: P.kwargs) -> T:
        """Ask, and wait until it is on disk."""
        return self._kept.scribe.ask(self._bound(*words, **named)).result()

    def soon(self, *words: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Ask at once; the event loop goes on until it is on disk."""
        return self._kept.scribe.ask_in_loop(self._bound(*words, **named))

    def later(self, *words: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Ask for something to be written with what others ask, or by itself after a moment."""
        return self._kept.scribe.ask_in_loop(self._bound(*words, **named), later=True)

    def _bound(self, *words: P.args, **named: P.kwargs) -> Callable[[Page], T]:
        return lambda page: self._work(self._kept, page, *words, **named)


class Entry(Generic[K, P, T]):
    """Turns a method that takes a page into a request to the scribe."""

    def __init__(self, work: Callable[Concatenate[K, Page, P], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __get__(self, kept: K, owner: type[K]) -> Asked[P, T]:
        return Asked(kept, self._work)


def entry(work: Callable[Concatenate[K, Page, P], T]) -> Entry[K, P, T]:
    """Decorates each method that reads or writes a page: it is done in one transaction, by the scribe."""
    return Entry(work)
