"""How a run ends, and how it goes on after a damage: in good order, with the same bytes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from pfl_common.errors import RunFailed, StateError
from pfl_common.files import recycler
from pfl_common.spec.messages import Over
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors.state import flat
from pfl_server.run.training import ATTEMPTS, Training
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, Script, last_state, play, trained


def test_stopping(tmp_path: Path) -> None:
    """The round that is under way is closed, every site finishes, the run is `stopped`."""
    spec = build_spec(rounds=9)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    training = Training(books, fleet, tick=TICK)
    fleet.on_ask = lambda site, task: training.stop() if task.round == 2 else None
    asyncio.run(training.run())
    assert {1: 1, 2: 1} == books.journal.committed()
    assert ("stopped", "") == books.journal.status()
    finish = [task for _, task in fleet.asked if task.kind is Kind.FINISH]
    assert [(2, 9)] * 3 == [(task.round, task.rounds) for task in finish]
    assert Over("stopped") == fleet.over
    books.journal.close()


@pytest.mark.parametrize("ending", ["finished", "stopped"])
def test_after_the_end_it_only_serves(tmp_path: Path, ending: str) -> None:
    """The same command once more: no round is played, whoever comes can still finish."""
    spec = build_spec(rounds=2)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    training = Training(books, fleet, tick=TICK)
    fleet.on_ask = lambda site, task: training.stop() if ending == "stopped" else None
    asyncio.run(training.run())
    books.journal.close()
    state = last_state(tmp_path, spec)
    _, again, served = play(tmp_path, spec)
    assert [] == trained(again)
    assert (Over(ending), ending) == (again.over, served.watch.status)
    assert torch.equal(flat(state), flat(last_state(tmp_path, spec)))


@pytest.mark.parametrize("ending", ["finished", "failed"])
def test_when_it_is_over_no_updates_are_kept_to_be_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """No other will come: they would take their room for good."""
    monkeypatch.setattr(recycler, "WORTH", 1)
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


def test_an_absent_site_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It is silent at FINISH: the run ends without it, and it finishes when it comes back."""
    spec = build_spec(quorum=1.0)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books, {("c", 2, 1): "silent"})

    async def run() -> list[str]:
        training = Training(books, replace_train_fate(fleet), tick=TICK)
        await training.run()
        assert ("finished", "") == books.journal.status()
        return [task.get_name() for task in training._late if not task.done()]

    assert 1 == len(asyncio.run(run()))
    books.journal.close()


def replace_train_fate(fleet: ScriptedFleet) -> ScriptedFleet:
    """Let the script speak of FINISH only."""
    script, fleet.script = fleet.script, {}
    fleet.on_ask = lambda site, task: fleet.script.update(script) if task.kind is Kind.FINISH else None
    return fleet


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("lost", [{}, {("b", 1, 1): "left", ("b", 2, 1): "left", ("b", 3, 1): "left"}])
def test_a_damaged_newest_checkpoint_is_made_again(tmp_path: Path, number: int, lost: Script) -> None:
    """From the one before it (or the first state) and the counted updates, to the same bytes."""
    whole, broken = build_spec(rounds=4), build_spec(rounds=4)
    play(tmp_path / "whole", whole, lost)
    stop_after(tmp_path / "broken", broken, number, lost)
    file = tmp_path / "broken" / "checkpoints" / f"round-{number:06d}.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 64
    file.write_bytes(raw)
    _, fleet, _ = play(tmp_path / "broken", broken, lost)
    assert min(n for _, n, _ in trained(fleet)) == number + 1
    assert newest(tmp_path / "whole") == newest(tmp_path / "broken")


def test_a_checkpoint_that_cannot_be_made_again(tmp_path: Path) -> None:
    """Its updates are damaged too: an error that says what to do, not a wrong model."""
    spec = build_spec(rounds=4)
    stop_after(tmp_path, spec, 2, {})
    (tmp_path / "checkpoints" / "round-000002.safetensors").write_bytes(b"")
    (tmp_path / "spool" / "000002-1-b.raw").write_bytes(b"\0" * 100)
    with pytest.raises(StateError, match="--new-run"):
        play(tmp_path, spec)


def stop_after(folder: Path, spec: RunSpec, number: int, script: Script) -> None:
    """Kill the coordinator when it opens the round after this one."""
    books = open_run(folder, spec)
    fleet = ScriptedFleet(books, script)

    async def run() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        fleet.on_ask = lambda site, task: training.cancel() if task.round > number else None
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(run())
    assert number == max(books.journal.committed())
    books.journal.close()


def newest(folder: Path) -> bytes:
    return max((folder / "checkpoints").glob("*.safetensors")).read_bytes()


def test_a_run_that_never_counted_a_site_says_so(tmp_path: Path) -> None:
    """An error among the events of the run that ends so, and of the coordinator that serves it again; how often each
    site was counted is known after a restart too.
    """
    spec = build_spec()
    lost = {("c", n, 1): "left" for n in (1, 2)}
    for life in (1, 2):
        _, _, training = play(tmp_path, spec, lost)
        told = [event.words for event in training._record.events.newest() if event.level == "error"]
        assert ["counted in none of 2 rounds: c"] == told, f"life {life}"
        assert {"a": 2, "b": 2} == dict(training.watch.took_part)


def test_a_run_that_counted_everybody_says_nothing(tmp_path: Path) -> None:
    """One round is enough."""
    _, _, training = play(tmp_path, build_spec(), {("c", 1, 1): "left"})
    assert [] == [event for event in training._record.events.newest() if event.level == "error"]
    assert {"a": 2, "b": 2, "c": 1} == dict(training.watch.took_part)
