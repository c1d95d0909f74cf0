"""What the spool holds while rounds are played, and when they are over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from pfl_common.errors import RunFailed
from pfl_common.files import recycler
from pfl_common.spec.messages import Receipt
from pfl_common.spec.run import Kind, Task
from pfl_server.decisions.sampling import Draw
from pfl_server.run import round_retries
from pfl_server.run.round_retries import ATTEMPTS
from pfl_server.run.spool_sweep import SpoolSweep
from pfl_server.run.training import Training
from pfl_server.sites.assignment import Prepare
from pfl_server.store.disk_wait import Room
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, play, trained


def test_updates_of_an_abandoned_attempt_make_room(tmp_path: Path) -> None:
    """They count nowhere: with large models the next attempt may need their place on the disk."""
    spec = build_spec()
    books = open_run(tmp_path, spec)
    held = []

    class Looking(ScriptedFleet):
        """Writes down what lies in the spool when the second attempt is asked for."""

        async def ask(self, client: str, task: Task, prepare: Prepare) -> str:
            if (task.kind, task.round, task.attempt) == (Kind.TRAIN, 1, 2):
                await training._sweep._sweeping
                held.append(books.spool.holds("000001-1-c"))
            return await super().ask(client, task, prepare)

    fleet = Looking(books, {("a", 1, 1): "left", ("b", 1, 1): "disk_full"})
    training = Training(books, fleet, tick=TICK)
    asyncio.run(training.run())
    assert [False] * 3 == held
    assert ("c", 1, 1) in trained(fleet)
    books.journal.close()


async def test_what_comes_while_it_is_swept_stays(tmp_path: Path) -> None:
    """The next round does not wait for it, and its updates lie beside those that go."""
    books = open_run(tmp_path, build_spec())
    spool, draw = tmp_path / "spool", Draw(("a",), frozenset())
    for number in (1, 2, 3, 4):
        books.journal.open_attempt(number, ("a",), draw)
        books.journal.receive(Receipt("run-1", "key", "a", "digest"), number, 1, f"{number:06d}-1-a")
        books.journal.commit(number, 1, ("a",), {})
        (spool / f"{number:06d}-1-a.raw").touch()
    sweep = SpoolSweep(books, Room(tmp_path))
    await sweep.sweep()
    (spool / "000005-1-a.raw").touch()
    await sweep.give_back()
    assert ["000004-1-a.raw", "000005-1-a.raw"] == sorted(path.name for path in spool.iterdir())
    books.journal.close()


def test_swept_to_what_is_needed(tmp_path: Path) -> None:
    """After many rounds the spool holds the last round's updates, and the shelf few files."""
    spec = build_spec(rounds=6)
    play(tmp_path, spec)
    assert {f"000006-1-{site}.{end}" for site in "abc" for end in ("raw", "json")} == {
        path.name for path in (tmp_path / "spool").iterdir()
    }
    assert 4 >= len([path for path in (tmp_path / "shelf").iterdir() if path.suffix != ".json"])


@pytest.mark.parametrize("ending", ["finished", "failed"])
def test_when_it_is_over_no_updates_are_kept_to_be_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """No other will come: they would take their room for good."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    monkeypatch.setattr(round_retries, "TRYING_TICKS", 1)
    monkeypatch.setattr(round_retries, "LONGEST_PAUSE_TICKS", 2)
    books = open_run(tmp_path, build_spec(rounds=6))
    lost = {(site, 6, attempt): "left" for site in "abc" for attempt in range(1, ATTEMPTS + 1)}
    fleet, kept = ScriptedFleet(books, lost if ending == "failed" else {}), []

    def look(site: str, task: Task) -> None:
        # Also while the last sites finish, which may take long, none is there.
        if task.kind is Kind.FINISH or task.round == 6:
            kept.append((task.kind, len(list((tmp_path / "spool").glob("blanks/*")))))

    fleet.on_ask = look
    with suppress(RunFailed):
        asyncio.run(Training(books, fleet, tick=TICK).run())
    assert ending == books.journal.status()[0]
    assert any(count for kind, count in kept if kind is Kind.TRAIN)
    assert {0} >= {count for kind, count in kept if kind is Kind.FINISH}
    assert not (tmp_path / "spool" / "blanks").exists()
    books.journal.close()
