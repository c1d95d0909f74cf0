"""What sites measured, summed when a round ends: only what most measure, once, and also after a kill in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.evaluation import add, evaluations, tell, vector
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Kind, Task
from pfl_server.run import score_sums
from pfl_server.run.observer import Observer
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.telemetry.event_log import Record
from tests.server.support.federation import build_spec, open_run

TASK = Task(Kind.TRAIN, 1, 2)
HONEST = {f"pre/test/{view}": vector(3, 4, 0.5) for view in ("combined", "global", "personal")}
VALIDATED = HONEST | {f"pre/validation/{view}": vector(1, 2, 0.5) for view in ("combined", "global")}


async def sum_up(books: Books, *reports: Scores) -> tuple[Scores, set[str]]:
    """The sum that is kept of these reports, and what of it is shown."""
    for site, report in zip("abcdef", reports, strict=False):
        books.journal.report(TASK.key, site, report)
    observer = Observer(books, Room(books.shelf.folder.parent), Record())
    await observer.sum_scores(TASK)
    return books.journal.scores()[TASK.key], set(observer.watch.scores)


@pytest.mark.parametrize("honest", [1, 2, 4])
async def test_what_one_site_makes_up_is_not_summed(tmp_path: Path, honest: int) -> None:
    """A view with a name of its own would be a series for ever; the other sites' views stay as they are."""
    books = open_run(tmp_path, build_spec())
    made_up = {f"pre/test/x{number}": vector(1, 1, 0.0) for number in range(31)}
    own = {"pre/test/combined": vector(1, 4, 0.5)} | made_up
    total, shown = await sum_up(books, own, *[HONEST] * honest)
    books.journal.close()
    agreed = {name: values for name, values in add([HONEST] * honest + [own]).items() if name in HONEST}
    assert agreed["pre/test/combined"] == total["pre/test/combined"]
    assert not any("/x" in name for name in (*total, *shown))
    if honest > 1:
        assert agreed == total


@pytest.mark.parametrize(
    "reports",
    [
        (HONEST,),
        (HONEST, HONEST),
        (VALIDATED, HONEST, HONEST, {}, {}, {}),
        (HONEST | {"post/test/combined": vector(4, 4, 0.1)}, HONEST, HONEST, HONEST),
        (HONEST | tell({"loss": 1.0}), HONEST, HONEST, HONEST),
    ],
    ids=["one site", "two sites", "few have a validation set, some nothing", "few have trained", "one tells"],
)
async def test_honest_sums_are_as_they_are(tmp_path: Path, reports: tuple[Scores, ...]) -> None:
    """All sites have the same views; which sets of samples and points each has is its own affair."""
    books = open_run(tmp_path, build_spec())
    total, shown = await sum_up(books, *reports)
    books.journal.close()
    assert add(reports) == total
    assert {name.removeprefix("pre/").removeprefix("post/") for name in evaluations(total)} == shown


async def test_one_site_does_not_own_the_accuracy_over_all_samples(tmp_path: Path) -> None:
    """Who claims a million samples counts with a hundred times those of the others."""
    books = open_run(tmp_path, build_spec())
    total, _ = await sum_up(books, HONEST, HONEST, {"pre/test/combined": vector(0, 10**6, 1e30)})
    books.journal.close()
    assert [6.0, 8.0 + 400] == total["pre/test/combined"][:2]
    assert 101.0 == total["pre/test/combined"][4]


async def test_a_round_is_its_training_and_its_measuring(tmp_path: Path) -> None:
    """A site that trains and one that only measures are in one sum; it is made once, and of nothing there is none."""
    books = open_run(tmp_path, build_spec())
    journal, room = books.journal, Room(tmp_path)
    assert await score_sums.sum_up(journal, room, *score_sums.of_round(TASK)) is None
    trained, measured = score_sums.of_round(TASK)
    journal.report(trained.key, "a", HONEST)
    journal.report(measured.key, "b", HONEST)
    assert not await score_sums.is_summed(journal, room, TASK)
    assert add([HONEST, HONEST]) == await score_sums.sum_up(journal, room, trained, measured)
    assert await score_sums.is_summed(journal, room, TASK)
    journal.close()


async def test_a_sum_is_known_before_it_is_on_disk(tmp_path: Path) -> None:
    """It is written with what is written next; of nothing nothing is."""
    books = open_run(tmp_path, build_spec())
    journal, room = books.journal, Room(tmp_path)
    nothing, writing = score_sums.sum_beside(journal, room, [], TASK)
    await writing
    assert nothing is None
    journal.report(TASK.key, "a", HONEST)
    total, writing = score_sums.sum_beside(journal, room, journal.reports(TASK.key), TASK)
    assert HONEST == total
    await writing
    assert {TASK.key: HONEST} == journal.scores()
    journal.close()


async def test_a_sum_that_is_there_is_kept(tmp_path: Path) -> None:
    """A coordinator killed between commit and sum sums what was left; a site that comes again later changes nothing."""
    books = open_run(tmp_path, build_spec())
    observer = Observer(books, Room(tmp_path), Record())
    books.journal.report(TASK.key, "a", HONEST)
    await observer.sum_left(TASK)
    books.journal.report(TASK.key, "b", HONEST)
    await observer.sum_left(TASK)
    assert {TASK.key: HONEST} == books.journal.scores()
    books.journal.close()
