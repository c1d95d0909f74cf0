"""The end of a task: what is told and sent, in which order, and what is sent again after a restart."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.connection.link import Unreachable
from pfl_client.daemon import handing_in
from pfl_client.run_folder.audit import entries
from pfl_client.trainer_process.api import Progress
from pfl_common.errors import Refused, StateError
from pfl_common.evaluation import REPORTS
from pfl_common.files import atomic
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import (
    Blob,
    Joined,
    Mark,
    Scores,
)
from pfl_common.spec.run import Kind
from tests.client.support.scripted_site import (
    FINISHED,
    SCORES,
    TOLD,
    Line,
    Trainer,
    assign,
    live,
    pin,
    put_together,
    quick,
    with_policy,
)

assert quick  # nobody waits here


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The site's state folder."""
    return tmp_path / "state"


async def test_a_measurement_leaves_no_trace(state: Path) -> None:
    """EVALUATE reports and nothing else: no upload, no new state."""
    line = Line([assign(Kind.EVALUATE), FINISHED])
    await live(line, Trainer(), state)
    assert [("000001-1-evaluate", SCORES)] == line.hear("report")
    assert [] == line.hear("submit")
    assert [(), ()] == line.marks


@pytest.mark.parametrize(
    ("tells", "taken", "told"), [(True, True, TOLD), (False, True, {}), (True, False, {}), (False, False, {})]
)
async def test_what_training_said_is_told_with_the_scores(
    state: Path, tells: bool, taken: bool, told: Scores
) -> None:
    """Only of a training, only if the site's owner wants it, and only to a coordinator that takes it."""
    spec = replace(pin(), versions={REPORTS: "told"} if taken else {})
    work = [assign(), assign(Kind.EVALUATE), assign(Kind.FINISH, 1, since=1), FINISHED]
    line = Line(work, [Joined(spec.to_json(), Blob("first", 5))])
    await put_together(line, Trainer(), state, tells=tells).run()
    keys = ("000001-1-train", "000001-1-evaluate", "000001-1-finish")
    assert list(zip(keys, (SCORES | told, SCORES, SCORES), strict=True)) == line.hear("report")
    history = [json.loads(text) for text in (state / "runs/run-1/history.jsonl").read_text().splitlines()]
    assert [{"loss": 1.0}] * 3 == [entry["metrics"] for entry in history], "its own book has it in any case"


async def test_a_site_that_no_longer_tells_keeps_to_that_after_a_restart(state: Path) -> None:
    """Also for a task that was done before, when it still told."""
    spec = replace(pin(), versions={REPORTS: "told"})
    joined = Joined(spec.to_json(), Blob("first", 5))
    ended = Line([assign()], [joined], troubles={"report": [StateError("a sudden end")]})
    with pytest.raises(StateError):
        await put_together(ended, Trainer(), state).run()
    assert [("000001-1-train", SCORES | TOLD)] == ended.hear("report")
    again = Line([assign(), FINISHED], [joined])
    await put_together(again, Trainer(), state, tells=False).run()
    assert [("000001-1-train", SCORES)] == again.hear("report")


async def test_a_drawn_drop_out_trains_keeps_and_says_so(state: Path) -> None:
    """Its state is new, its scores are told, its update does not exist."""
    line = Line([assign(drop=True), FINISHED])
    await live(line, Trainer(), state)
    assert [("000001-1-train", "dropped", "")] == line.hear("decline")
    assert ([], 1) == (line.hear("submit"), len(line.hear("report")))
    assert (Mark(1, 1),) == line.marks[-1]


async def test_what_was_done_before_a_restart_is_sent_and_not_done_again(state: Path) -> None:
    """A daemon that comes back with its update in the outbox only hands it in."""
    with pytest.raises(StateError):
        await live(Line([assign()], troubles={"submit": [StateError("a sudden end")]}), Trainer(), state)
    again, trainer = Line([assign(), FINISHED]), Trainer()
    await live(again, trainer, state)
    assert [("000001-1-train", b"update 1")] == again.hear("submit")
    assert [] == trainer.jobs


async def test_an_update_that_is_not_taken(state: Path) -> None:
    """A round that went on without this site is no reason to leave."""
    line = Line([assign(), assign(number=2), FINISHED], troubles={"submit": [Refused("late", "too late")]})
    assert FINISHED == await live(line, Trainer(), state)
    assert 2 == len(line.hear("submit"))


async def test_an_update_that_is_too_large_as_it_is_sealed_does_not_leave(state: Path) -> None:
    """The manifest pins 4 bytes; what was sealed has 8."""
    manifests = {**pin().manifests, "train/train/up": (Entry("sum.encoder.weight", "float32", (1,)),)}
    spec = replace(pin(), manifests=manifests)
    line = Line([assign(), FINISHED], [Joined(spec.to_json(), Blob("first", 5))])
    await with_policy(line, Trainer(), state, "[uploads]\nlargest = '7'").run()
    assert [] == line.hear("submit")
    assert [("000001-1-train", "policy", "this site's policy: uploads.largest")] == line.hear("decline")
    assert "update" not in {entry["kind"] for entry in entries(state)}


async def test_with_one_call_the_next_task_comes_along(state: Path) -> None:
    """Nobody asks for it; it is told which generation the vault holds by then, and the receipt is in the list."""
    line = Line([assign()], at_once=[assign(number=2, since=1), FINISHED])
    assert FINISHED == await live(line, Trainer(), state)
    assert [("000001-1-train", b"update 1", SCORES), ("000002-1-train", b"update 2", SCORES)] == line.hear(
        "hand_in"
    )
    assert [(), (Mark(1, 1),), (Mark(2, 1), Mark(1, 1))] == line.marks
    assert ([], []) == (line.hear("report"), line.hear("submit"))
    assert ["update", "receipt"] * 2 == [
        e["kind"] for e in entries(state) if e["kind"] in ("update", "receipt")
    ]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
async def test_a_receipt_lasts_with_the_next_update_or_soon(
    state: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Whichever comes first; when the site stops, all of its list lasts."""
    monkeypatch.setattr(handing_in, "SETTLE_SECONDS", seconds)
    synced, trainer, looked = list[int](), Trainer(), list[int]()
    book = state / "audit.jsonl"

    def note(path: Path) -> None:
        if path == book:
            synced.append(len(book.read_bytes().splitlines()))

    monkeypatch.setattr(atomic, "sync", note)

    async def train(progress: Progress) -> None:
        async with asyncio.timeout(20):
            while looked and not seconds and synced[-1] < len(book.read_bytes().splitlines()):  # noqa: ASYNC110
                await asyncio.sleep(0)  # a thread's end goes unannounced
        looked.append(len(synced))

    trainer.during = train
    line = Line([assign()], at_once=[assign(number=2, since=1), FINISHED])
    assert FINISHED == await live(line, trainer, state)
    before, after = looked
    assert before + (1 if seconds else 2) == after, "the first update alone, or its receipt too"
    assert len(book.read_bytes().splitlines()) == synced[-1]


async def test_where_nothing_came_along_it_is_asked_for(state: Path) -> None:
    """The coordinator does not hold a receipt back for long."""
    line = Line([assign(), assign(number=2, since=1), FINISHED], at_once=[None, None])
    assert FINISHED == await live(line, Trainer(), state)
    assert 2 == len(line.hear("hand_in"))


async def test_an_update_whose_receipt_was_lost_is_offered_once_more(state: Path) -> None:
    """The call had no answer, and the single calls that follow find its evaluation too late: it was taken."""
    line = Line(
        [assign(), FINISHED],
        at_once=[Unreachable("cut")],
        troubles={"report": [Refused("late", "it is over")]},
    )
    assert FINISHED == await live(line, Trainer(), state)
    assert [("000001-1-train", b"update 1")] == line.hear("submit")
    assert "receipt" in {entry["kind"] for entry in entries(state)}


async def test_an_evaluation_that_is_too_late_is_no_update_in_time(state: Path) -> None:
    """Without a call that may have come through nothing more is sent."""
    line = Line([assign(), FINISHED], troubles={"report": [Refused("late", "it is over")]})
    assert FINISHED == await live(line, Trainer(), state)
    assert [] == line.hear("submit")
