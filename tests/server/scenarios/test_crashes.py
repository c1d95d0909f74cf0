"""Killed whenever anything reaches the disk: the same command again ends in the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pfl_common.spec.participation import Participation
from pfl_common.spec.run import RunSpec
from pfl_server.run.training import Training
from pfl_server.store.run_store import Books
from tests.server.support.federation import ScriptedFleet, build_spec, open_run

STEPS = {
    "journal": ("open_attempt", "commit", "abandon", "receive", "report", "sum_up", "end"),
    "spool": ("admit", "sweep"),
    "checkpoints": ("save",),
    "shelf": ("put", "clear"),
    "half": ("close",),
}


class Killed(BaseException):
    """The process is gone: nobody catches this."""


class Fuse:
    """Lets so many steps pass; then the process dies, and nothing it still tries has any effect."""

    def __init__(self, steps: int) -> None:
        self.left, self.dead = steps, False
        self.die: Callable[[], None] = lambda: None

    def burn(self) -> None:
        """One step nearer to the end."""
        if self.dead or self.left == 0:
            self.dead = True
            self.die()
            raise Killed
        self.left -= 1


class Fragile:
    """Something of the books whose named steps burn the fuse, before and after they take effect."""

    def __init__(self, thing: Any, fuse: Fuse, steps: tuple[str, ...]) -> None:
        self._thing, self._fuse, self._steps = thing, fuse, steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        if name not in self._steps:
            return found

        return Step(found, self._fuse)


class Step:
    """One of them, called or awaited."""

    def __init__(self, found: Any, fuse: Fuse) -> None:
        self._found, self._fuse = found, fuse

    def __call__(self, *words: Any, **named: Any) -> Any:
        self._fuse.burn()
        answer = self._found(*words, **named)
        self._fuse.burn()
        return answer

    async def soon(self, *words: Any, **named: Any) -> Any:
        """Killed before it is asked, or when it is on disk and nobody has heard of it."""
        self._fuse.burn()
        answer = await self._found.soon(*words, **named)
        self._fuse.burn()
        return answer

    def later(self, *words: Any, **named: Any) -> Any:
        """Killed before it is asked, or when it is on disk; what comes after it may be asked meanwhile."""
        self._fuse.burn()
        return asyncio.ensure_future(self._heard(self._found.later(*words, **named)))

    async def _heard(self, answer: Any) -> Any:
        heard = await answer
        self._fuse.burn()
        return heard


def live(folder: Path, spec: RunSpec, steps: int) -> bool:
    """One life of a coordinator, this many steps long; whether the run came to its end."""
    books, fuse = open_run(folder, spec), Fuse(steps)
    try:
        asyncio.run(_live(books, fuse))
    except (Killed, asyncio.CancelledError):
        return False
    finally:
        books.journal.close()
    return not fuse.dead


async def _live(books: Books, fuse: Fuse) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    fragile = replace(
        books, **{name: Fragile(getattr(books, name), fuse, steps) for name, steps in STEPS.items()}
    )
    # An abandoned attempt and two losses are part of the story.
    script = {("a", 1, 1): "left", ("b", 1, 1): "left", ("c", 2, 1): "left"}
    training = asyncio.create_task(Training(fragile, ScriptedFleet(fragile, script), tick=0.001).run())
    fuse.die = lambda: loop.call_soon_threadsafe(training.cancel)
    await training


def outcome(folder: Path, spec: RunSpec) -> tuple[object, ...]:
    """All that must be the same: the last state's bytes, who was counted and lost in every round, and what the
    method told of it.
    """
    books = open_run(folder, spec)
    attempts = [
        (r["round"], r["attempt"], r["status"], r["cohort"], r["counted"], r["losses"])
        for r in books.journal.rounds()
    ]
    scores, status = books.journal.scores(), books.journal.status()
    told = [(course.round, course.attempt, course.diagnostics) for course in books.journal.course()]
    books.journal.close()
    return max((folder / "checkpoints").glob("*.safetensors")).read_bytes(), attempts, scores, status, told


PARTS = 4
"""So that no single test is long: each takes every fourth step."""

SPEC_WORDS = {"rounds": 2, "participation": Participation(0.7, 1.0, drop=0.1)}


@pytest.mark.parametrize("first", range(PARTS))
def test_killed_at_every_step(tmp_path: Path, first: int) -> None:
    """However short the first life, the second ends where an undisturbed one does: bytes, book and sums."""
    spec = build_spec(**SPEC_WORDS)
    assert live(tmp_path / "whole", spec, 10**6)
    wanted = outcome(tmp_path / "whole", spec)
    steps, ended = first, False
    while not ended:
        folder = tmp_path / f"life-{steps}"
        ended = live(folder, spec, steps)
        assert ended or live(folder, spec, 10**6), f"the second life after {steps} steps did not end"
        assert wanted == outcome(folder, spec), f"killed after {steps} steps"
        steps += PARTS
    assert 60 < steps, "the story has become too short to tell anything"


@pytest.mark.parametrize("method", ["fedavg", "fedproto"])
def test_killed_again_and_again(tmp_path: Path, method: str) -> None:
    """Lives too short for a round each still get the run to its end; what a method tells is told once."""
    spec = build_spec(method, **SPEC_WORDS)
    assert live(tmp_path / "whole", spec, 10**6)
    lives = 1
    while not live(tmp_path / "many", spec, 9 + lives):
        lives += 1
        assert 60 > lives
    assert lives > 3
    *_, told = wanted = outcome(tmp_path / "whole", spec)
    assert [method == "fedproto" and status == "committed" for _, _, status, *_ in wanted[1]] == [
        bool(diagnostics) for _, _, diagnostics in told
    ]
    assert wanted == outcome(tmp_path / "many", spec)
