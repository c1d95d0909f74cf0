"""The end of a run that diverges: three attempts in a row, those before a restart too. The journal here is a list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pfl_common import methods
from pfl_common.errors import RunFailed
from pfl_common.spec.run import Kind, Task
from pfl_server.decisions.sampling import Draw
from pfl_server.run.divergence_guard import Guard

DRAW = Draw(("a", "b"), frozenset())
BOTH = {"a": "diverged", "b": "refused:norm"}


class Scene:
    """A guard between a journal of these attempts and a page that shows its words."""

    def __init__(self, *rows: dict[str, Any], sites: dict[str, str] | None = None) -> None:
        self.watch, self.said = SimpleNamespace(words=""), list[tuple[str, str]]()
        model = SimpleNamespace(shape=(3,), values="numbers", kind="table", mean=())
        spec = SimpleNamespace(quorum=0.5, settings={"lr": 0.5}, model=model)
        journal = SimpleNamespace(
            rounds=SimpleNamespace(soon=lambda: list(rows)),
            sites=SimpleNamespace(soon=lambda: sites or {}),
            fallbacks=SimpleNamespace(soon=dict),
        )
        books = SimpleNamespace(spec=spec, journal=journal, method=methods.load("fedavg"))
        events = SimpleNamespace(add=lambda words, level: self.said.append((words, level)))

        async def have(look: Any) -> Any:
            return look()

        self.guard = Guard(books, SimpleNamespace(have=have), events, self.watch)

    async def judge(self, losses: dict[str, str], *, number: int = 1, attempt: int = 1) -> None:
        """An attempt of two sites with these losses; it is committed if it lost none."""
        ended = SimpleNamespace(counted=tuple({"a", "b"} - losses.keys()), losses=losses)
        await self.guard.judge(Task(Kind.TRAIN, number, 9, attempt), DRAW, ended, committed=not losses)


def row(status: str, losses: dict[str, str]) -> dict[str, Any]:
    """An attempt as the journal has it."""
    return {"status": status, "cohort": ["a", "b"], "drops": [], "counted": [], "losses": losses}


async def test_the_third_attempt_in_a_row_ends_the_run() -> None:
    """Each is told to the operator, the last with the rate to try next: the method's own, as it is smaller."""
    scene = Scene(sites={"a": '{"low": -2, "high": 40}', "b": "{}"})
    await scene.judge(BOTH)
    await scene.judge(BOTH, attempt=2)
    assert ["error", "error"] == [level for _, level in scene.said]
    assert scene.said[-1][0] == scene.watch.words
    with pytest.raises(RunFailed) as ended:
        await scene.judge(BOTH, attempt=3)
    words = str(ended.value)
    for fact in ("3 attempts", "round 1, attempt 3", "lr is 0.5", "--set lr=0.1", "a: -2 to 40"):
        assert fact in words


async def test_a_round_that_closes_takes_the_words_away() -> None:
    """And the count begins anew."""
    scene = Scene()
    for number in (1, 2, 3):
        await scene.judge(BOTH, number=number)
        assert "1 of 3" in scene.watch.words
        await scene.judge({}, number=number, attempt=2)
        assert "" == scene.watch.words


async def test_sites_that_are_lost_otherwise_say_nothing_of_training() -> None:
    """The count stays as it is, and so do the words."""
    scene = Scene()
    await scene.judge(BOTH)
    words = scene.watch.words
    await scene.judge({"a": "lease", "b": "lease"}, attempt=2)
    assert (words, 1) == (scene.watch.words, len(scene.said))
    await scene.judge(BOTH, attempt=3)
    assert "2 of 3" in scene.watch.words


async def test_attempts_before_a_restart_count() -> None:
    """Two of them, then one that is still open: the next one that diverges is the third."""
    before = [row("committed", {}), row("abandoned", BOTH), row("abandoned", BOTH), row("open", BOTH)]
    scene = Scene(*before)
    await scene.guard.recall()
    assert "2 attempts" in scene.watch.words
    with pytest.raises(RunFailed):
        await scene.judge(BOTH, attempt=4)


async def test_a_run_that_was_well_says_nothing_after_a_restart() -> None:
    """The page shows no words."""
    scene = Scene(row("abandoned", BOTH), row("committed", {}))
    await scene.guard.recall()
    assert "" == scene.watch.words
