"""A run that ends because its mean validation loss stands still: finished, with the reason, also after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from pfl_common.errors import RunFailed
from pfl_common.evaluation import vector
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Kind, RunSpec
from pfl_server.run.training import Training
from pfl_server.store.baselines import read_finished
from tests.server.support.federation import Measure, ScriptedFleet, build_spec, measure, open_run
from tests.server.support.lives import TICK

LOSSES = [1.0, 0.8, 0.7, 0.9, 0.7, 0.69995, 0.1, 0.1]
"""By rounds trained; the best before the end is the one after round 2, the last ones come too late."""


def measured(losses: list[float], *, point: str = "pre", sites: str = "abc") -> Measure:
    """Sites with a validation part on which they have these losses; each of the others only tests."""

    def report(site: str, number: int) -> dict[str, list[float]]:
        after = number - (point == "pre")
        own = {f"{point}/validation/combined": vector(5, 10, losses[after])} if site in sites else {}
        return measure(site, number) | own

    return report


def play(
    folder: Path, spec: RunSpec, report: Measure, *, kill_at: int = 0, here: Collection[str] = "abc"
) -> tuple[ScriptedFleet, Training]:
    """One life of the coordinator, to its end or until it asks for this round."""
    books = open_run(folder, spec)
    fleet = ScriptedFleet(books)
    fleet.measure, fleet.here = report, set(here)

    async def run() -> Training:
        training = Training(books, fleet, tick=TICK)
        task = asyncio.create_task(training.run())
        if kill_at:
            fleet.on_ask = lambda site, asked: task.cancel() if asked.round == kill_at else None
        await asyncio.gather(task, return_exceptions=bool(kill_at))
        return training

    try:
        return fleet, asyncio.run(run())
    finally:
        books.journal.close()


def rounds(fleet: ScriptedFleet) -> list[int]:
    """The rounds that were trained, and the one that the sites were asked to finish after."""
    return sorted({task.round for _, task in fleet.asked if task.kind is Kind.TRAIN}) + [
        task.round for site, task in fleet.asked if task.kind is Kind.FINISH and site == "a"
    ]


def test_it_ends_in_good_order(tmp_path: Path) -> None:
    """Three measurements without a gain after round 2: the sixth round is the last; it is finished, and says why."""
    spec = build_spec(rounds=8, patience=3)
    fleet, training = play(tmp_path, spec, measured(LOSSES))
    assert [1, 2, 3, 4, 5, 6, 6] == rounds(fleet)
    assert fleet.over is not None
    assert "finished" == fleet.over.status
    for words in ("3 measured rounds", "0.7000", "after round 2", "0.1 %"):
        assert words in fleet.over.words
    status = training.status()
    assert ("finished", fleet.over.words, 6) == (status.status, status.words, status.round)
    found = read_finished(tmp_path / "journal.sqlite")
    assert found is not None
    assert 6 == found.subject.rounds


@pytest.mark.parametrize("kill_at", [2, 4, 5, 6])
def test_a_coordinator_that_is_killed_decides_the_same(tmp_path: Path, kill_at: int) -> None:
    """The count follows from the journal."""
    spec = build_spec(rounds=8, patience=3)
    play(tmp_path, spec, measured(LOSSES), kill_at=kill_at)
    fleet, training = play(tmp_path, spec, measured(LOSSES))
    assert [6, 6] == rounds(fleet)[-2:]
    assert "after round 2" in training.status().words


def test_one_that_is_killed_while_it_ends_does_not_go_on(tmp_path: Path) -> None:
    """Nor does one that is started once more when all is over: it serves the last model, and says the same."""
    spec = build_spec(rounds=8, patience=3)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    fleet.measure = measured(LOSSES)

    async def run() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        fleet.on_ask = lambda site, task: training.cancel() if task.kind is Kind.FINISH else None
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(run())
    books.journal.close()
    for _ in range(2):
        fleet, training = play(tmp_path, spec, measured(LOSSES))
        assert ([6], "finished") == (rounds(fleet), training.status().status)
        assert "after round 2" in fleet.over.words


def test_measured_after_training(tmp_path: Path) -> None:
    """Then a round's own loss is known with it, and the run ends a round sooner."""
    spec = build_spec(rounds=8, patience=3)
    fleet, _ = play(tmp_path, spec, measured(LOSSES, point="post"))
    assert [1, 2, 3, 4, 5, 5] == rounds(fleet)


def test_how_it_stands_is_told_on_the_way(tmp_path: Path) -> None:
    """Of a run that goes to its last round nothing is said at the end."""
    books = open_run(tmp_path, build_spec(rounds=4, patience=3))
    fleet, told = ScriptedFleet(books), []
    fleet.measure = measured(LOSSES)
    training = Training(books, fleet, tick=TICK)
    fleet.on_ask = lambda site, task: told.append(training.status().patience)
    asyncio.run(training.run())
    books.journal.close()
    assert any("1 of 3" not in words and "0 of 3" in words for words in told)
    assert ("", "") == (training.status().patience, training.status().words)


def test_where_no_site_validates_it_is_refused(tmp_path: Path) -> None:
    """After the first round that all sites measured; one with a validation part is enough."""
    spec = build_spec(rounds=8, patience=3)
    with pytest.raises(RunFailed, match="no site has measured a validation part") as caught:
        play(tmp_path / "none", spec, measure)
    assert "round 1" in str(caught.value)
    fleet, _ = play(tmp_path / "one", spec, measured(LOSSES, sites="b"))
    assert 6 == rounds(fleet)[-1]


def test_with_a_part_of_the_sites_one_of_the_others_may_validate(tmp_path: Path) -> None:
    """So it is only refused when as many rounds as it has patience for were measured in vain."""
    spec = build_spec(rounds=8, patience=3, participation=Participation.parse("a"))
    with pytest.raises(RunFailed, match="up to round 3"):
        play(tmp_path, spec, measure, here={"a"})


def test_a_run_without_patience_looks_at_nothing(tmp_path: Path) -> None:
    """It goes to its last round."""
    fleet, _ = play(tmp_path, build_spec(rounds=7), measured(LOSSES))
    assert [*range(1, 8), 7] == rounds(fleet)
