"""THE STORY of the demo: start a federation, train, train the baselines, read the files they left, write the page."""

from __future__ import annotations

import asyncio
import shutil
import signal
from time import perf_counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pfl_common import exit_codes
from pfl_common.errors import PflError, RunFailed
from pfl_common.identity import site_name
from pfl_deploy.demo import baselines, federation
from pfl_deploy.demo.findings import Findings, gather
from pfl_deploy.demo.following import Trained
from pfl_deploy.demo.live import Board
from pfl_deploy.demo.plan import CONTESTANTS, PATIENT, Plan
from pfl_deploy.demo.processes import Programs
from pfl_deploy.demo.report import render, say_differences

SHIFTED = (
    "shifted: a second test of pictures made otherwise than those a site trains on, where a site has one"
)
LONGEST_START, LONGEST_ROUND = 300.0, 120.0
"""Seconds: whatever takes longer than all of these together does not come to an end any more."""


class Interrupted(PflError):
    """A signal ended the demo, and with it everything it had started."""

    exit_code = exit_codes.INTERRUPTED


def play(plan: Plan, console: Console) -> Findings:
    """Play the demo; whatever it starts has ended when this returns, however it returns."""
    began, names = perf_counter(), [site_name(path) for path in plan.sites]
    console.print(f"everything is written to {plan.out}", markup=False)
    for folder in (plan.state, plan.logs):
        folder.mkdir(mode=0o700)
    plan.conditions.write_text(PATIENT, encoding="utf-8")
    try:
        runs = asyncio.run(_train(plan, names, console))
    except asyncio.CancelledError:
        shutil.rmtree(plan.state)
        raise Interrupted(f"interrupted: all programs have ended; what they said is in {plan.logs}") from None
    findings = gather(plan, runs, seconds=perf_counter() - began)
    plan.results.write_text(findings.to_json(), encoding="utf-8")
    plan.report.write_text(render(findings), encoding="utf-8")
    if not plan.keep:
        shutil.rmtree(plan.state)
    show(findings, console)
    console.print(f"\nthe report: {plan.report}", markup=False)
    return findings


async def _train(plan: Plan, names: list[str], console: Console) -> list[Trained]:
    loop, story = asyncio.get_running_loop(), asyncio.current_task()
    assert story is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        # The first signal ends the story; while it ends its programs further ones change nothing.
        loop.add_signal_handler(number, _Once(story))
    programs = Programs(plan.logs, plan.state)
    limit = LONGEST_START + LONGEST_ROUND * plan.rounds
    titles = [contestant.title for contestant in CONTESTANTS]
    try:
        async with asyncio.timeout(limit):
            with Board(console, names, titles) as board:
                real = await federation.train(plan, programs, board)
                return [*await baselines.train_all(plan, programs, board), real]
    except TimeoutError:
        raise RunFailed(f"no end after {limit:.0f} s; what the programs said is in {plan.logs}") from None
    finally:
        await programs.end_all()


class _Once:
    """Cancels the story at its first call."""

    def __init__(self, story: asyncio.Task[list[Trained]]) -> None:
        self._story, self._called = story, False

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            self._story.cancel()


def show(findings: Findings, console: Console) -> None:
    """The result in one table, in percent."""
    table = Table("site", title="accuracy on each site's own test data, in percent", title_justify="left")
    for method in findings.methods:
        table.add_column(method.title, justify="right")
    for name, values in findings.rows:
        mean = name.partition(",")[0] == "mean"
        if mean:
            table.add_section()
        table.add_row(name, *_row(values), end_section=mean)
    console.print(table)
    for method in findings.methods[:-1]:
        if words := say_differences(method):
            console.print(f"{findings.real.title} beside {method.title}{words}", markup=False)
    if any(method.shifted for method in findings.methods):
        console.print(SHIFTED)


def _row(values: list[float]) -> list[Text]:
    best = max(values)
    return [Text(f"{100 * value:.1f}", "bold" if value == best else "") for value in values]
