"""A tally counts a set of updates: leaving one out is as if it had never come, whatever makes the mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State, flat
from pfl_server.store.run_store import Books
from pfl_server.store.tallies import PlainTally, RobustTally, open_tally
from tests.server.support.federation import (
    build_header,
    build_offer,
    build_spec,
    make_update,
    open_run,
    write_parcel,
)

TASK = Task(Kind.TRAIN, 1, 2)


def admit(books: Books, site: str) -> str:
    file = books.shelf.folder.parent / f"up-{site}"
    groups = write_parcel(file, books.spec, make_update(books.spec, site, 1, around=books.first))
    return books.spool.admit(site, file, build_offer(build_header(books.spec, site, TASK, groups), file))


def mean(books: Books, sites: str, *, without: str = "") -> State:
    tally = open_tally(books, books.first)
    for site in sites:
        tally.add(site, f"000001-1-{site}")
    tally.leave_out(without)
    arrivals = tally.arrivals()
    assert set(sites) - set(without) == set(arrivals.shown)
    return arrivals.total.mean(books.first)


@pytest.mark.parametrize("rule", ["none", "median", "norm-clip"])
def test_leaving_out(tmp_path: Path, rule: str) -> None:
    """To the bit."""
    books = open_run(tmp_path, build_spec(robust=rule))
    books.compare_with(books.first)
    for site in "abc":
        admit(books, site)
    assert isinstance(open_tally(books, books.first), PlainTally if rule == "none" else RobustTally)
    assert torch.equal(flat(mean(books, "ac")), flat(mean(books, "abc", without="b")))
    assert not torch.equal(flat(mean(books, "abc")), flat(mean(books, "ac")))
    books.journal.close()


def test_how_far_each_went(tmp_path: Path) -> None:
    """Measured when it came, and the same when it is read again."""
    books = open_run(tmp_path, build_spec())
    books.compare_with(books.first)
    name = admit(books, "a")
    tally = open_tally(books, books.first)
    tally.add("a", name)
    up = make_update(books.spec, "a", 1, around=books.first).under("sum")
    expected = float(np.linalg.norm(flat(up).double().numpy() - flat(books.first).double().numpy()))
    assert {"a": pytest.approx(expected, rel=1e-5)} == tally.changes()
    books.spool.let_letters_go()
    assert {"a": pytest.approx(expected, rel=1e-5)} == tally.changes()
    books.journal.close()
