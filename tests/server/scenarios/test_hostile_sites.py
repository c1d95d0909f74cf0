"""One hostile site among honest ones: it neither holds up their rounds nor ends their run."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pfl_common.spec.run import RunSpec
from pfl_server.decisions.sampling import Draw
from pfl_server.run import round_retries
from tests.server.support.federation import build_spec
from tests.server.support.hostile import HOSTILE, World, play_or_fail
from tests.server.support.insiders import (
    ENDING,
    HOLDING,
    Attack,
    Insider,
    beat_for_ever,
    decline,
    hold_the_end,
)

SITES = ("a", "b", "c", HOSTILE)


def short_spec(**fields: object) -> RunSpec:
    """Rounds of some hundredths of a second, whose deadline is far away."""
    rules = {
        "rounds": 4,
        "lease_seconds": 0.15,
        "round_seconds": 60.0,
        "straggler": 0.5,
        "quorum": "majority",
    }
    return build_spec(sites=SITES, **rules | fields)


@pytest.mark.parametrize("attack", HOLDING.values(), ids=HOLDING)
async def test_no_round_is_held_to_its_deadline(tmp_path: Path, attack: Attack) -> None:
    """The run ends, all honest sites are counted in every round, and each hears that it is over."""
    world, began = World(tmp_path, short_spec(rounds=2)), time.monotonic()
    assert "" == await play_or_fail(world, attack)
    assert time.monotonic() - began < 10
    assert [{"a", "b", "c"}] * 2 == [set(row["counted"]) - {HOSTILE} for row in world.rows]
    assert {"a", "b", "c"} <= world.over_at.keys()


async def test_who_was_lost_again_and_again_is_not_waited_for(tmp_path: Path) -> None:
    """Two rounds wait for it, the third finds it aside; who it is is said."""
    world = World(tmp_path, short_spec(rounds=3, straggler=5.0))
    world.books.journal.open_attempt(1, SITES, Draw(SITES, frozenset()))
    world.books.journal.abandon(1, 1, {HOSTILE: "lease"}, "of an earlier life")
    world.books.journal.open_attempt(1, SITES, Draw(SITES, frozenset()))
    world.books.journal.abandon(1, 2, {HOSTILE: "lease"}, "of an earlier life")
    assert "" == await play_or_fail(world, decline("trainer_failed"))
    assert ["trainer_failed"] * 3 == [
        row["losses"].get(HOSTILE) for row in world.rows if row["status"] == "committed"
    ]
    assert f"{HOSTILE} is set aside (trainer_failed)" in world.events()


async def test_a_site_that_is_aside_costs_no_time(tmp_path: Path) -> None:
    """It beats for ever; a round that finds it aside ends when the others are done."""
    world = World(tmp_path, short_spec(rounds=1, straggler=1000.0))
    for _ in range(3):
        number = world.books.journal.open_attempt(1, SITES, Draw(SITES, frozenset()))
        world.books.journal.abandon(1, number, {HOSTILE: "deadline"}, "of an earlier life")
    began = time.monotonic()
    assert "" == await play_or_fail(world, beat_for_ever)
    assert time.monotonic() - began < 10
    assert {HOSTILE: "aside"} == world.rows[-1]["losses"]


@pytest.mark.parametrize("attack", ENDING.values(), ids=ENDING)
async def test_one_site_does_not_end_a_run_that_waits_for_all(tmp_path: Path, attack: Attack) -> None:
    """With quorum 1: after a few abandoned attempts no quorum counts on it, and the run ends as it should."""
    world = World(tmp_path, short_spec(rounds=3, quorum=1.0))
    assert "" == await play_or_fail(world, attack)
    assert ["a", "b", "c"] == sorted(set(world.rows[-1]["counted"]) - {HOSTILE})
    assert [1, 2, 3] == sorted(row["round"] for row in world.rows if row["status"] == "committed")
    assert f"{HOSTILE} is set aside" in world.events()
    assert len(world.rows) <= 6, "three attempts are lost to it at most"


async def test_between_attempts_there_are_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sites one declines for ever: the run is given up after a time, and not after a number alone."""
    monkeypatch.setattr(round_retries, "ATTEMPTS", 2)
    monkeypatch.setattr(round_retries, "TRYING_TICKS", 500)
    monkeypatch.setattr(round_retries, "LONGEST_PAUSE_TICKS", 20)
    spec = build_spec(sites=("a", HOSTILE), rounds=1, lease_seconds=0.2, quorum="majority")
    world, began = World(tmp_path, spec), time.monotonic()
    words = await play_or_fail(world, decline("disk_full"))
    assert time.monotonic() - began >= 500 * 0.002
    assert 2 < len(world.rows) < 60
    assert f"{HOSTILE} declined" in words
    assert "disk_full: no" in words


async def test_when_all_have_declined_for_good_the_run_ends_at_once(tmp_path: Path) -> None:
    """Nobody is left, and to ask again changes nothing: one attempt, and the site's own words."""
    world = World(tmp_path, build_spec(sites=(HOSTILE,), rounds=1, lease_seconds=0.2))
    words = await play_or_fail(world, decline("too_few_samples"))
    assert "round 1 cannot be trained" in words
    assert "too_few_samples: no" in words
    assert 1 == len(world.rows)


async def test_who_is_done_hears_of_the_end_while_another_holds_it(tmp_path: Path) -> None:
    """Even where a run waits for all, and no rule for slow sites helps."""
    world = World(tmp_path, short_spec(rounds=1, quorum=1.0, round_seconds=1.5))
    began = time.monotonic()
    assert "" == await play_or_fail(world, hold_the_end)
    assert max(world.over_at[site] for site in "abc") - began < 1.0


async def test_an_honest_site_that_is_slow_is_lost_by_nobody(tmp_path: Path) -> None:
    """Twenty times as slow as the others from its first task on: within thirty medians it is waited for."""
    spec = short_spec(rounds=2, straggler=3.0)
    world = World(tmp_path, spec, work_seconds={HOSTILE: 0.6})
    await world.play()
    assert [sorted(SITES)] * 2 == [row["counted"] for row in world.rows]


async def test_a_slow_site_that_comes_back_is_counted(tmp_path: Path) -> None:
    """It was lost nine times, and takes ten times as long as the others. The next round but two has it, though it is
    still at work for one that is over when it is waited for.
    """
    work = dict.fromkeys("abc", 0.04) | {HOSTILE: 0.4}
    world, away = World(tmp_path, short_spec(rounds=20, straggler=5.0, lease_seconds=0.1), work), 9
    back = list[int]()

    async def come_late(insider: Insider) -> None:
        await insider.leave()
        while len(world.books.journal.committed()) < away:  # noqa: ASYNC110  # nobody tells of it
            await asyncio.sleep(0.01)
        await insider.join()
        back.append(len(world.books.journal.committed()))
        await world.be_honest(HOSTILE)

    await world.play(come_late)
    counted = [row["round"] for row in world.rows if HOSTILE in row["counted"]]
    assert back[0] < 15, "a machine so busy shows nothing"
    assert set(range(back[0] + 4, 21)) <= set(counted)
