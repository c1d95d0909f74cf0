"""Visitors: they get the newest state, count for nothing, and have time to fetch it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.run import Kind
from pfl_common.tensors import codec
from pfl_common.tensors.state import State
from pfl_server.decisions.sampling import Draw
from pfl_server.sites import visits
from pfl_server.sites.visits import Visits
from pfl_server.store.run_store import Books
from tests.server.support.federation import build_spec, open_run


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def commit(books: Books, number: int) -> State:
    """A round is over: its state is each number of the first state plus the round's."""
    state = books.first.apply(lambda value: value + number)
    books.checkpoints.save(number, state)
    books.journal.open_attempt(number, ("a",), Draw(("a",), frozenset()))
    books.journal.commit(number, 1, ("a",), {})
    return state


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    """A run of nine rounds, of which none is played."""
    opened = open_run(tmp_path, build_spec(rounds=9))
    yield opened
    opened.journal.close()


async def test_the_newest_state_for_one_that_was_in_no_round(books: Books) -> None:
    """Before the first round there is none; then it is a FINISH for a newcomer, whose bytes are the state's."""
    desk = Visits(books)
    assert None is await desk.receive("z")
    for number in (1, 2):
        state = commit(books, number)
    visited = await desk.receive("z")
    task, manifest = visited.last.task, books.spec.manifest(Kind.FINISH, "train", "down")
    assert (Kind.FINISH, 2, 0) == (task.kind, task.round, task.since)
    assert (books.spec.to_json(), books.init.blob) == (visited.joined.spec, visited.joined.init)
    content = bytearray(desk.find(visited.last.blob.digest).read_bytes())
    found = codec.decode(content, manifest, visited.last.header.groups)
    assert all((found[name] == state[name]).all() for name in state)
    assert {"a", "b", "c"} == set(books.journal.sites()), "a visitor is no member"


async def test_a_parcel_stays_while_it_is_asked_for(books: Books) -> None:
    """Ten minutes after it was last asked for, and never more than four; the newest always."""
    clock = Clock()
    desk = Visits(books, clock)
    digests = []
    for number in range(1, 7):
        commit(books, number)
        digests.append((await desk.receive("z")).last.blob.digest)
    assert [False] * 2 + [True] * 4 == [desk.find(digest) is not None for digest in digests]
    clock.now += visits.KEPT_SECONDS + 1
    assert desk.find(digests[2]) is not None, "somebody fetches it still"
    await desk.receive("y")
    assert [2, 5] == [place for place, digest in enumerate(digests) if desk.find(digest)]


async def test_parcels_of_an_earlier_life_are_gone(books: Books) -> None:
    """After a restart nobody is told of them: they only take room."""
    commit(books, 1)
    digest = (await Visits(books).receive("z")).last.blob.digest
    again = Visits(books)
    assert (None, []) == (again.find(digest), list((books.shelf.folder.parent / "visits").glob("*")))
    assert digest == (await again.receive("z")).last.blob.digest


async def test_a_method_that_shares_nothing_says_so(tmp_path: Path) -> None:
    """The refusal is the method's own sentence."""
    opened = open_run(tmp_path / "alone", build_spec("local"))
    with pytest.raises(Refused, match="nothing is shared") as refused:
        await Visits(opened).receive("z")
    assert "no_newcomers" == refused.value.code
    opened.journal.close()
