"""When most sites run away on a model, the run goes back to the one before it, and says what to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from pfl_common.errors import RunFailed
from pfl_common.spec.run import Kind, RunSpec
from pfl_common.tensors.state import State, flat
from pfl_server.decisions.divergence import Outcome
from pfl_server.decisions.sampling import Draw
from pfl_server.run.fall_back import FallBack
from pfl_server.run.training import Training
from pfl_server.store.disk_wait import Room
from pfl_server.telemetry.event_log import Events
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, Script, expected, last_state, play, rounds, trained

ALL = ["a", "b", "c"]
NAN, BIG = "refused:not_finite", "refused:norm"
SPOILT: Script = {("a", 3, 1): NAN, ("b", 3, 1): BIG, ("c", 3, 1): "diverged"}
"""All three run away in the first attempt at round 3."""


def after(spec: RunSpec, first: State, *numbers: int) -> State:
    """The state after these rounds and no others, each with all sites."""
    for number in numbers:
        first = expected(spec, first, ALL, number)
    return first


def same(one: State, other: State) -> bool:
    return torch.equal(flat(one), flat(other))


def test_the_run_goes_back_one_checkpoint(tmp_path: Path) -> None:
    """Round 3 is tried again from the state after round 1; what round 2 made is in no later state."""
    spec = build_spec(rounds=4)
    books, fleet, training = play(tmp_path, spec, dict(SPOILT))
    assert same(after(spec, books.first, 1, 3, 4), last_state(tmp_path, spec))
    assert {("a", 3, 1), ("a", 3, 2)} <= set(trained(fleet))
    assert "finished" == training.status().status
    (told,) = [e.words for e in training._observer._events.newest() if "begins from the state" in e.words]
    for fact in ("round 3", "after round 1", "that of round 2 is dropped", "had counted a, b, c", "pfl stop"):
        assert fact in told


def test_the_page_says_so_while_it_lasts(tmp_path: Path) -> None:
    """In the attempt after the fall the operator reads what happened and what to do; once it closed, nothing."""
    spec = build_spec(rounds=3)
    books = open_run(tmp_path, spec)
    fleet, seen = ScriptedFleet(books, dict(SPOILT)), list[str]()
    training = Training(books, fleet, tick=TICK)
    fleet.on_ask = lambda site, task: seen.append(training.status().words) if task.attempt == 2 else None
    asyncio.run(training.run())
    assert 3 == len(seen)
    assert "1 of 3 such attempts" in seen[0]
    assert "begins from the state after round 1" in seen[0]
    assert "" == training.status().words
    books.journal.close()


@pytest.mark.parametrize("moment", [1, 2])
def test_a_restart_decides_the_same(tmp_path: Path, moment: int) -> None:
    """Killed when the attempt after the fall has just opened, or with one of its updates in: the same bits, and the
    page still says it.
    """
    spec = build_spec(rounds=4)
    play(tmp_path / "whole", spec, dict(SPOILT))
    books = open_run(tmp_path / "killed", spec)
    fleet, asked = ScriptedFleet(books, dict(SPOILT)), list[str]()

    async def live() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())

        def kill(site: str, task: object) -> None:
            if task.attempt == 2:
                asked.append(site)
                if len(asked) == moment:
                    training.cancel()

        fleet.on_ask = kill
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(live())
    books.journal.close()
    again = open_run(tmp_path / "killed", spec)
    training, seen = Training(again, fleet := ScriptedFleet(again, dict(SPOILT)), tick=TICK), list[str]()
    fleet.on_ask = lambda site, task: seen.append(training.status().words)
    asyncio.run(training.run())
    again.journal.close()
    assert "after round 1" in seen[0]
    assert newest(tmp_path / "whole") == newest(tmp_path / "killed")


def newest(folder: Path) -> bytes:
    return max((folder / "checkpoints").glob("*.safetensors")).read_bytes()


@pytest.mark.parametrize("lost", [3, 4])
def test_a_damaged_checkpoint_after_a_fall(tmp_path: Path, lost: int) -> None:
    """It is made again from what its round began from, which is not the round before."""
    spec = build_spec(rounds=5)
    play(tmp_path / "whole", spec, dict(SPOILT))
    books = open_run(tmp_path / "broken", spec)
    fleet = ScriptedFleet(books, dict(SPOILT))

    async def live() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        fleet.on_ask = lambda site, task: training.cancel() if task.round > lost else None
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(live())
    books.journal.close()
    (tmp_path / "broken" / "checkpoints" / f"round-{lost:06d}.safetensors").write_bytes(b"")
    play(tmp_path / "broken", spec, dict(SPOILT))
    assert newest(tmp_path / "whole") == newest(tmp_path / "broken")


def test_a_round_falls_back_once(tmp_path: Path) -> None:
    """If it was not the round before, the run ends after as many attempts as ever, and no further back."""
    spec = build_spec(rounds=4)
    script = {(site, 3, n): NAN for site in ALL for n in range(1, 9)}
    books = open_run(tmp_path, spec)
    with pytest.raises(RunFailed, match="3 attempts"):
        asyncio.run(Training(books, ScriptedFleet(books, script), tick=TICK).run())
    assert {3: 1} == books.journal.fallbacks()
    books.journal.close()


@pytest.mark.parametrize(
    "script",
    [
        {(site, 1, 1): NAN for site in ALL},
        {("a", 3, 1): NAN},
        {("a", 3, 1): NAN, ("b", 3, 1): "left", ("c", 3, 1): "lease"},
    ],
    ids=["the first round", "a site of three", "lost for other reasons"],
)
def test_nothing_to_go_back_from(tmp_path: Path, script: Script) -> None:
    """Before the first model there is none; a few sites cannot bring it about."""
    spec = build_spec(rounds=4)
    books, _, _ = play(tmp_path, spec, script)
    again = open_run(tmp_path, spec)
    assert {} == again.journal.fallbacks()
    again.journal.close()
    if len(script) == 3:
        assert same(after(spec, books.first, 1, 2, 3, 4), last_state(tmp_path, spec))


@pytest.mark.parametrize(("shared", "back_to"), [(2, 0), (1, None)])
def test_an_older_phase_is_not_gone_back_to(tmp_path: Path, shared: int, back_to: int | None) -> None:
    """Its state may lack what the present phase sends: here everything is shared in the first rounds."""
    books = open_run(tmp_path, build_spec("lgfedavg", settings={"pretrain_rounds": shared}))
    outcome = Outcome.of(Draw(tuple(ALL), frozenset()), 0.5, 0, dict.fromkeys(ALL, NAN), committed=False)
    fall_back = FallBack(books, Room(tmp_path), Events())
    assert back_to == fall_back.target(books.task(Kind.TRAIN, 2, 1), outcome)
    books.journal.close()


def test_a_run_that_is_stopped_after_a_fall_ends_with_the_older_state(tmp_path: Path) -> None:
    """Every site finishes with it, and so does one that comes after the coordinator was started again."""
    spec = build_spec(rounds=4)
    books = open_run(tmp_path, spec)
    script: Script = {**SPOILT, **{(site, 3, 2): "left" for site in ALL}}
    fleet = ScriptedFleet(books, script)
    training = Training(books, fleet, tick=TICK)
    fleet.on_ask = lambda site, task: training.stop() if (task.round, task.attempt) == (3, 2) else None
    asyncio.run(training.run())
    assert {"spec": books.digest_after(1)} == {"spec": sent(books, spec)}
    assert ["committed", "committed", "abandoned", "abandoned"] == [
        r["status"] for r in books.journal.rounds()
    ]
    books.journal.close()
    again = open_run(tmp_path, spec)
    asyncio.run(Training(again, ScriptedFleet(again), tick=TICK).run())
    assert again.digest_after(1) == sent(again, spec)
    again.journal.close()


def sent(books: object, spec: RunSpec) -> str:
    """The state that the parcel for FINISH is made from."""
    headers = [
        (books.shelf.folder / note.name).read_text() for note in books.shelf.folder.glob("note-*.json")
    ]
    (found,) = {text for text in headers if f'\\"kind\\":\\"{Kind.FINISH}\\"' in text}
    return found.partition('\\"state\\":\\"')[2].partition('\\"')[0]


def test_a_round_in_which_most_run_away_is_not_committed(tmp_path: Path) -> None:
    """Though enough others are left for the quorum: these may be the very ones that spoilt the model."""
    spec = build_spec(rounds=4, quorum=0.3)
    script: Script = {("a", 3, 1): NAN, ("b", 3, 1): BIG}
    books, _, _ = play(tmp_path, spec, script)
    assert ("abandoned", "committed") == tuple(row["status"] for row in rounds(tmp_path, spec)[2:4])
    assert same(after(spec, books.first, 1, 3, 4), last_state(tmp_path, spec))
