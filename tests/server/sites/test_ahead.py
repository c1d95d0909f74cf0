"""The next round's download, closed while the last round's state is saved: used if it fits, and never otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.spec.messages import header_down
from pfl_common.spec.run import Kind, Task
from pfl_server.sites.ahead import Ahead
from pfl_server.store.run_store import Books
from tests.server.support.federation import build_spec, open_run
from tests.server.support.lives import play

NEXT = Task(Kind.TRAIN, 2, 2)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return open_run(tmp_path, build_spec())


async def test_what_was_prepared_is_handed_out(books: Books) -> None:
    """The download of the next round is made once, under the very digest of the state that was saved."""
    ahead = Ahead(books)
    state = await ahead.settle(1, books.first, NEXT)
    digest = books.digest_after(1)
    await asyncio.sleep(0)
    downloads = ahead.downloads(NEXT, digest)
    assigned = await downloads.assignment(state, "a", replace(NEXT, since=1))
    assert header_down(books.spec, NEXT, state=digest) == assigned.header
    assert 1 == len(downloads._made), "it was there already, under the same name"
    books.journal.close()


@pytest.mark.parametrize("change", [{"attempt": 2}, {"round": 3}, {"kind": Kind.FINISH}])
async def test_what_does_not_fit_is_not_used(books: Books, change: dict[str, object]) -> None:
    """Another attempt, another round, the end of the run: made anew; so is a download of another state."""
    ahead = Ahead(books)
    await ahead.settle(1, books.first, NEXT)
    await asyncio.sleep(0)
    assert {} == ahead.downloads(replace(NEXT, **change), books.digest_after(1))._made
    await ahead.settle(1, books.first, NEXT)
    await asyncio.sleep(0)
    assert {} == ahead.downloads(NEXT, "of another state")._made
    books.journal.close()


async def test_replies_of_each_sites_own_are_not_prepared(books: Books) -> None:
    """What differs from site to site is made when the site asks."""
    ahead = Ahead(replace(books, method=replace(books.method, per_client=True)))
    await ahead.settle(1, books.first, NEXT)
    await asyncio.sleep(0)
    assert {} == ahead.downloads(NEXT, books.digest_after(1))._made
    books.journal.close()


def test_in_a_run_each_broadcast_is_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all rounds: one for newcomers, one for each following round, one for the end; none twice."""
    closed: list[str] = []
    from pfl_deploy.simulation.loopback import OpenEnvelopes

    post = OpenEnvelopes.post

    def note(self: OpenEnvelopes, header: object, *rest: object) -> object:
        closed.append(header.to_json())
        return post(self, header, *rest)

    monkeypatch.setattr(OpenEnvelopes, "post", note)
    play(tmp_path, build_spec(rounds=4))
    assert len(set(closed)) == len(closed)
    assert 2 + 3 + 1 == len(closed)
