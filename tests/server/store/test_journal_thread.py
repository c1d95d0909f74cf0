"""One hand writes: together what is asked together, each thing whole or not at all, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pfl_common.errors import StateError
from pfl_server.store import journal_thread
from pfl_server.store.journal import Journal
from pfl_server.store.journal_thread import Page, Scribe, entry

SECONDS = 20.0
"""Far more than anything here takes."""


class Watched:
    """A scribe of one table, whose statements are seen and who can be held up in the middle of a transaction."""

    def __init__(self, file: Path) -> None:
        self.file, self.said = file, []
        db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        db.execute("create table line (words text primary key)")
        db.set_trace_callback(self.said.append)
        self.scribe = Scribe(db)

    def hold(self) -> Callable[[], None]:
        """Keep the scribe in a transaction until the answer is called."""
        busy, go_on = threading.Event(), threading.Event()

        def wait(page: Page) -> None:
            busy.set()
            assert go_on.wait(SECONDS)

        self.scribe.ask(wait)
        assert busy.wait(SECONDS)
        return go_on.set

    def ask(self, words: str, *, later: bool = False) -> Future[None]:
        """Have a line written."""
        return self.scribe.ask(lambda page: page.write("insert into line values (?)", words), later=later)

    def lines(self) -> list[str]:
        """What the scribe reads."""
        rows = self.scribe.ask(lambda page: page.rows("select words from line order by rowid")).result(
            SECONDS
        )
        return [words for (words,) in rows]

    def on_disk(self) -> list[str]:
        """What another process would read."""
        db = sqlite3.connect(self.file)
        rows = db.execute("select words from line order by rowid").fetchall()
        db.close()
        return [words for (words,) in rows]

    def commits(self) -> int:
        """How often the disk was waited for, the table's making aside."""
        return sum(said.lower() == "commit" for said in self.said)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path / "lines.sqlite")
    yield watched
    watched.scribe.close()


def test_what_is_asked_meanwhile_shares_a_commit(watched: Watched) -> None:
    """Ten ask while one transaction is under way: all ten are the next one, in the order they asked."""
    go_on = watched.hold()
    answers = [watched.ask(f"line {number}") for number in range(10)]
    go_on()
    assert [None] * 10 == [answer.result(SECONDS) for answer in answers]
    assert 2 == watched.commits()
    assert [f"line {number}" for number in range(10)] == watched.on_disk()


def test_nobody_has_an_answer_before_it_is_on_disk(watched: Watched) -> None:
    """When the first of two learns that its line is written, another process sees both."""
    seen: list[list[str]] = []
    go_on = watched.hold()
    first, second = watched.ask("one"), watched.ask("two")
    first.add_done_callback(lambda _: seen.append(watched.on_disk()))
    go_on()
    second.result(SECONDS)
    assert [["one", "two"]] == seen


def test_what_can_wait_is_written_with_what_comes_next(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone it would cost a commit; in the order in which all of it was asked."""
    monkeypatch.setattr(journal_thread, "LATER_SECONDS", SECONDS)
    later = [watched.ask(words, later=True) for words in ("one", "two")]
    with pytest.raises(TimeoutError):
        later[1].result(0.1)
    now = watched.ask("three")
    assert [None] * 3 == [answer.result(SECONDS) for answer in (*later, now)]
    assert (1, ["one", "two", "three"]) == (watched.commits(), watched.on_disk())


def test_what_can_wait_does_not_wait_for_ever(watched: Watched) -> None:
    """Nobody else asks: it is written by itself."""
    watched.ask("one", later=True).result(SECONDS)
    assert ["one"] == watched.on_disk()


def test_a_journal_that_is_closed_writes_what_waited(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for before."""
    monkeypatch.setattr(journal_thread, "LATER_SECONDS", SECONDS)
    watched.ask("one", later=True)
    watched.scribe.close()
    assert ["one"] == watched.on_disk()


def test_who_reads_sees_what_was_asked_before(watched: Watched) -> None:
    """A reader stands in the same row as the writers."""
    go_on = watched.hold()
    watched.ask("one")
    read = watched.scribe.ask(lambda page: page.rows("select words from line"))
    watched.ask("two")
    go_on()
    assert [("one",)] == read.result(SECONDS)


def test_only_what_fails_fails(watched: Watched) -> None:
    """In one commit one of three is refused half-way: nothing of it stays, the others are written."""
    called: list[str] = []

    def write_twice(page: Page) -> None:
        page.afterwards(lambda: called.append("never"))
        page.write("insert into line values ('half')")
        page.write("insert into line values ('one')")

    def write_last(page: Page) -> None:
        page.afterwards(lambda: called.append("last"))
        page.write("insert into line values ('last')")

    go_on = watched.hold()
    answers = [watched.ask("one"), watched.scribe.ask(write_twice), watched.scribe.ask(write_last)]
    go_on()
    with pytest.raises(sqlite3.IntegrityError):
        answers[1].result(SECONDS)
    assert [None, None] == [answers[n].result(SECONDS) for n in (0, 2)]
    assert ["one", "last"] == watched.on_disk()
    assert (["last"], 2) == (called, watched.commits())


@pytest.mark.parametrize("end", [KeyboardInterrupt, MemoryError])
def test_a_broken_deed_does_not_end_the_scribe(watched: Watched, end: type[BaseException]) -> None:
    """Whatever is raised in it, everybody is answered, and the next who ask are served."""

    def burst(page: Page) -> None:
        raise end

    with pytest.raises(end):
        watched.scribe.ask(burst).result(SECONDS)
    watched.ask("after").result(SECONDS)
    assert ["after"] == watched.on_disk()


def test_a_full_disk_is_told_to_everybody(watched: Watched) -> None:
    """What undoes a whole transaction undoes it for all who were in it; with room again they are served."""
    called: list[str] = []

    def write_and_call(page: Page) -> None:
        page.afterwards(lambda: called.append("written"))
        page.write("insert into line values ('small')")

    def fill(page: Page) -> None:
        # As a full disk does: the statement fails and takes the transaction with it.
        page.write("rollback")
        raise sqlite3.OperationalError("database or disk is full")

    go_on = watched.hold()
    answers = [watched.scribe.ask(write_and_call), watched.scribe.ask(fill), watched.ask("another")]
    go_on()
    for answer in answers:
        with pytest.raises(sqlite3.OperationalError, match="full"):
            answer.result(SECONDS)
    assert ([], []) == (called, watched.on_disk())
    watched.scribe.ask(write_and_call).result(SECONDS)
    assert (["written"], ["small"]) == (called, watched.on_disk())


def test_a_line_too_long_for_the_disk(watched: Watched) -> None:
    """The real error of a disk without room; the line that fits is not lost by it for good."""
    watched.scribe.ask(lambda page: page.rows("pragma max_page_count=3")).result(SECONDS)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        watched.ask("x" * 100_000).result(SECONDS)
    watched.ask("fits").result(SECONDS)
    assert ["fits"] == watched.on_disk()


async def test_a_write_cannot_be_taken_back(watched: Watched) -> None:
    """A caller that is cancelled while waiting has still asked: it is written, and nobody is told twice."""
    go_on = watched.hold()
    waiting = asyncio.ensure_future(asyncio.wrap_future(watched.ask("asked")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    go_on()
    assert waiting.cancelled()
    assert ["asked"] == await asyncio.to_thread(watched.lines)


async def test_the_event_loop_goes_on(watched: Watched) -> None:
    """While the disk is waited for, others in the loop have their turn."""
    go_on = watched.hold()
    waiting = asyncio.wrap_future(watched.ask("slow"))
    for _ in range(5):
        await asyncio.sleep(0)
        assert not waiting.done()
    go_on()
    await asyncio.wait_for(waiting, SECONDS)


def test_closing_writes_what_was_asked(watched: Watched) -> None:
    """Then no more is taken; closing once more does nothing."""
    go_on = watched.hold()
    answers = [watched.ask(words) for words in ("one", "two")]
    threading.Timer(0.01, go_on).start()
    watched.scribe.close()
    assert [True, True] == [answer.done() for answer in answers]
    assert ["one", "two"] == watched.on_disk()
    with pytest.raises(StateError, match="closed"):
        watched.ask("three")
    watched.scribe.close()


class Notebook:
    """Something a scribe writes in."""

    def __init__(self, scribe: Scribe) -> None:
        self.scribe = scribe

    @entry
    def add(self, page: Page, words: str, *, twice: bool = False) -> int:
        """How many lines there are then."""
        for end in ("", "!") if twice else ("",):
            page.write("insert into line values (?)", words + end)
        return len(page.rows("select words from line"))


async def test_an_entry_has_two_forms(watched: Watched) -> None:
    """Called it waits; with `soon` it is asked at once, awaited or not."""
    notebook: Any = Notebook(watched.scribe)
    assert 1 == notebook.add("one")
    assert 3 == await notebook.add.soon("two", twice=True)
    unawaited = notebook.add.soon("three")
    assert ["one", "two", "two!", "three"] == watched.lines()
    assert 4 == await unawaited


@pytest.fixture
def prompt(tmp_path: Path) -> Iterator[Scribe]:
    """A scribe for whom no disk is waited for."""
    db = sqlite3.connect(tmp_path / "lines.sqlite", isolation_level=None, check_same_thread=False)
    db.execute("create table line (words text primary key)")
    scribe = Scribe(db, prompt=True)
    yield scribe
    scribe.close()


async def test_where_no_disk_is_waited_for_it_is_done_at_once(prompt: Scribe) -> None:
    """By whoever asks, and before that one goes on; with it what could wait, in the order in which it was asked."""
    notebook: Any = Notebook(prompt)
    later, here = notebook.add.later("one"), list[int]()
    soon = notebook.add.soon("two", twice=True)
    prompt.ask(lambda page: here.append(threading.get_ident()))
    assert (True, [threading.get_ident()]) == (soon.done(), here)
    assert [1, 3] == await asyncio.gather(later, soon)
    assert 4 == notebook.add("three")


async def test_what_waits_for_company_does_not_wait_for_ever(prompt: Scribe) -> None:
    """Nor is it lost where the journal is closed meanwhile."""
    notebook: Any = Notebook(prompt)
    assert 1 == await asyncio.wait_for(notebook.add.later("one"), SECONDS)
    last = notebook.add.later("two")
    prompt.close()
    assert 2 == await asyncio.wait_for(last, SECONDS)


async def test_done_at_once_or_not_at_all(prompt: Scribe) -> None:
    """Who fails is told, and leaves nothing; who comes after the end too."""
    notebook: Any = Notebook(prompt)
    notebook.add("one")
    with pytest.raises(sqlite3.IntegrityError):
        await notebook.add.soon("one")
    assert 2 == await notebook.add.soon("two")
    prompt.close()
    prompt.close()
    with pytest.raises(StateError, match="closed"):
        notebook.add("three")


def test_many_threads_take_turns(prompt: Scribe) -> None:
    """None writes into another's transaction."""
    notebook: Any = Notebook(prompt)
    threads = [threading.Thread(target=notebook.add, args=(f"line {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert 9 == notebook.add("last")


def test_who_is_forgotten_is_closed(tmp_path: Path) -> None:
    """A journal nobody knows any more leaves no thread and no open file behind."""
    journal = Journal(tmp_path / "journal.sqlite")
    thread = journal.scribe._thread
    journal.begin("run-1", "{}")
    assert thread is not None and thread.is_alive()
    del journal
    gc.collect()
    thread.join(SECONDS)
    assert not thread.is_alive()
