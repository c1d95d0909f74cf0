"""The demo's baselines: other methods on the same data, each in one process.

A simulated run ends in the same bytes as one over the network, so this saves the start of many programs and
changes no number. Both run at the same time, each on a core of its own where there are two.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter

from pfl_deploy.demo.following import Follower, Trained, find_folders
from pfl_deploy.demo.live import Board
from pfl_deploy.demo.plan import YARDSTICKS, Contestant, Plan
from pfl_deploy.demo.processes import Programs


async def train_all(plan: Plan, programs: Programs, board: Board) -> list[Trained]:
    """All yardsticks side by side."""
    names = " and ".join(contestant.title for contestant in YARDSTICKS)
    board.say(f"for comparison: {names}, each in one process, with pfl simulate")
    runs = [asyncio.create_task(_train(contestant, plan, programs, board)) for contestant in YARDSTICKS]
    try:
        return list(await asyncio.gather(*runs))
    finally:
        for run in runs:
            run.cancel()


async def _train(contestant: Contestant, plan: Plan, programs: Programs, board: Board) -> Trained:
    began, place = perf_counter(), plan.state / contestant.method
    follower = Follower(contestant, plan, board, lambda: _folders(plan, place))
    words: list[str | Path] = [*contestant.words(plan), "--data", plan.data.resolve(), "--out", place]
    simulation = await programs.start("pfl", ["simulate", *words], name=contestant.method, hear=follower.hear)
    await simulation.finish()
    return follower.trained(_folders(plan, place), began)


def _folders(plan: Plan, place: Path) -> dict[str, Path]:
    return find_folders(plan, place / "sites", "{site}/runs/*")
