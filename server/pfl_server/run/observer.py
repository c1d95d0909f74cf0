"""Records a run's numbers, curve and events while it is played. The run does not depend on it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import structlog
from pydantic import JsonValue

from pfl_common import evaluation
from pfl_common.spec.messages import Over, RunStatus, Scores
from pfl_common.spec.run import ClientId, Kind, RunSpec, Task
from pfl_server.decisions.round import Round
from pfl_server.run import score_sums
from pfl_server.run.attempt import OUTCOMES, Opened, Watch
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.telemetry.counters import Phase
from pfl_server.telemetry.course import Course
from pfl_server.telemetry.event_log import Record
from pfl_server.telemetry.history import COMBINED, Curve

log = structlog.get_logger("pfl.training")


class Observer:
    """Records each attempt when it opens and ends, and sums the sites' evaluations."""

    def __init__(self, books: Books, room: Room, record: Record) -> None:
        self._books, self._journal, self._room = books, books.journal, room
        self._meter, self._events, self._disclosure = record.meter, record.events, record.disclosure
        self._curve = Curve()
        self._facts = describe(books.spec)
        self._opened: Opened | None = None
        self._untold: Callable[[], None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._summing: asyncio.Task[None] | None = None
        self.watch = Watch(started=_begun(books))

    def status(self) -> RunStatus:
        """The run at a glance."""
        spec, watch = self._books.spec, self.watch
        latest = watch.scores.get(COMBINED, {})
        seen = RunStatus(
            spec.id,
            spec.method,
            watch.status,
            watch.round,
            spec.rounds,
            watch.attempt,
            words=watch.words,
            patience=watch.patience,
            awaited=watch.awaited or tuple(sorted(watch.unserved)),
            # A spread over accuracies of 0 is not defined, and neither JSON nor people have a word for that.
            scores={name: value for name, value in latest.items() if math.isfinite(value)},
            started=watch.started,
            spec=self._facts,
            curve=tuple(map(self._disclosure.limit, self._curve.points())),
            fewest_reporters=self._disclosure.fewest,
            phases=self._curve.phases(),
        )
        if (opened := self._opened) is None:
            return seen
        round_ = opened.round
        counted, lost = len(round_.counted), len(round_.losses)
        return replace(seen, opened=opened.at, cohort=watch.cohort, counted=counted, lost=lost)

    async def recall(self) -> None:
        """After a restart: read the rounds so far from the journal."""
        rounds = await self._journal.rounds.soon()
        courses, summed = await self._journal.course.soon(), await self._journal.scores.soon()
        self._curve.recall(rounds, courses, summed)
        self._events.recall(rounds, courses, await self._journal.goodbyes.soon())
        if courses:
            self.watch.started = min(self.watch.started, courses[0].opened)
            self.watch.closed = max(course.ended for course in courses)
        self._recall_endings(rounds, courses)
        self._recall_last(rounds, summed)
        self.watch.recalled = True

    def _recall_endings(self, rounds: Sequence[Mapping[str, object]], courses: Sequence[Course]) -> None:
        """How the attempts so far have ended, how long they took and what was lost in them."""
        lasted = {(course.round, course.attempt): course.ended - course.opened for course in courses}
        for row in rounds:
            outcome, place = cast(str, row["status"]), cast(tuple[int, int], (row["round"], row["attempt"]))
            if outcome not in OUTCOMES:
                continue
            self.watch.outcomes[outcome] += 1
            if place in lasted:
                self.watch.seconds[outcome].add(lasted[place])
        for course in courses:
            self._lose(course)

    def _lose(self, course: Course) -> None:
        for place, count in course.losses.items():
            reason, _, stage = place.partition("/")
            self.watch.losses[reason, stage] += count

    def _recall_last(self, rounds: Sequence[Mapping[str, object]], summed: Mapping[str, Scores]) -> None:
        """How far the run was, and how good."""
        committed = [row for row in rounds if row["status"] == "committed"]
        self.watch.took_part.clear()
        for row in committed:
            self.watch.took_part.update(cast(list[ClientId], row["counted"]))
        if committed:
            last, watch = committed[-1], self.watch
            watch.round, watch.attempt = cast(int, last["round"]), cast(int, last["attempt"])
            watch.cohort, watch.counted = (len(cast(list[ClientId], last[n])) for n in ("cohort", "counted"))
        if summed:
            self._show(summed[max(summed, key=_when_measured)])

    def opened(self, opened: Opened, cohort: Sequence[ClientId]) -> None:
        """A round begins."""
        self._tell_untold()
        self._opened = opened
        task, watch = opened.task, self.watch
        watch.round, watch.attempt, watch.cohort, watch.opened = (
            task.round,
            task.attempt,
            len(cohort),
            opened.at,
        )
        log.info("round opened", round=task.round, attempt=task.attempt, cohort=len(cohort))
        again = f", attempt {task.attempt}" if task.attempt > 1 else ""
        # An attempt that a restarted coordinator goes on with was opened before.
        self._events.add(f"round {task.round}{again} opened: {len(cohort)} sites asked", at=opened.at)

    def took(self, phase: Phase, seconds: float) -> None:
        """A round has been through a phase."""
        self._meter.took(phase, seconds)

    def course(self, opened: Opened) -> Course:
        """How an attempt went, to be written with its end."""
        self._meter.took("seal", opened.sealing.seconds)
        self._meter.took("fold", opened.folding.seconds)
        task, seconds = opened.task, asyncio.get_running_loop().time() - opened.began
        reading = self._meter.read()
        lap = reading.since(self._meter.closed)
        lost = ((_kind(why), opened.stages.get(site, "called")) for site, why in opened.round.losses.items())
        return Course(
            task.round,
            task.attempt,
            opened.at,
            opened.at + seconds,
            lap.seconds,
            lap.bytes,
            losses=Counter(f"{reason}/{stage}" for reason, stage in lost),
            reading=reading,
        )

    async def closed(
        self, opened: Opened, counted: Sequence[ClientId], course: Course, reports: Sequence[Scores]
    ) -> None:
        """A round is committed, and these are its sites' evaluations."""
        self._ended("committed", course)
        task, losses = opened.task, opened.round.losses
        self.watch.counted, self.watch.closed = len(counted), course.ended
        self.watch.took_part.update(counted)
        self._curve.close(course, cohort=self.watch.cohort, counted=len(counted))
        self._events.closed(task.round, counted=len(counted), losses=losses)
        await self.settle()
        self._untold = partial(self._tell_closed, opened, len(counted), course, reports)
        # The opening of the next round does not wait for it.
        self._summing = asyncio.create_task(self._sum_closed())

    async def _sum_closed(self) -> None:
        self._tell_untold()
        if self._writing is not None:
            await self._writing

    def _tell_untold(self) -> None:
        """Tell of the round that was closed last, if that was not done: before anything is told of the next one."""
        untold, self._untold = self._untold, None
        if untold is not None:
            untold()

    def _tell_closed(self, opened: Opened, counted: int, course: Course, reports: Sequence[Scores]) -> None:
        task, losses = opened.task, opened.round.losses
        tasks = score_sums.of_round(task)
        total, self._writing = score_sums.sum_beside(self._journal, self._room, reports, *tasks)
        self._measure(total, task)
        log.info(
            "round closed",
            round=task.round,
            counted=counted,
            lost=dict(sorted(losses.items())) or 0,
            seconds=round(course.ended - course.opened, 2),
            **self._how_good(),
        )

    def set_aside(self, site: ClientId, reason: str) -> None:
        """A site was lost several times in a row."""
        how = "no round counts on it until it delivers, as long as enough others are left"
        log.warning("a site is set aside", site=site, reason=reason, how=how)
        slow = "; a larger --straggler waits longer for slow sites" if reason == "straggler" else ""
        self._events.add(f"{site} is set aside ({reason}): {how}{slow}", "warning")

    def abandoned(self, opened: Opened, reason: str, course: Course) -> None:
        """An attempt was given up."""
        self._ended("abandoned", course)
        task = opened.task
        log.warning("round abandoned", round=task.round, attempt=task.attempt, reason=reason)
        self._events.abandoned(task.round, task.attempt, reason=reason)

    def resumed(self, last: int, *, over: str = "") -> None:
        """A restarted coordinator goes on; if the run was over before, it only serves it."""
        if over:
            log.info(
                "run served again", status=over, rounds=last, to_train_again="--new-run", **self._how_good()
            )
            self._events.add(f"started again: the run had {over} after round {last}")
            self._tell_absent()
        else:
            log.info("run resumed", after_round=last)
            self._events.add(f"run resumed after round {last}")

    def over(self, over: Over, number: int, round_: Round) -> None:
        """There will be no more rounds."""
        status = self.watch.status = over.status
        why = {"why": over.words} if over.words else {}
        log.info(
            "run over", status=status, rounds=number, absent=sorted(round_.losses), **why, **self._how_good()
        )
        absent = f"; away at the end: {', '.join(sorted(round_.losses))}" if round_.losses else ""
        because = f"; {over.words}" if over.words else ""
        self._events.add(f"run {status} after round {number}{because}{absent}")
        roster = self._books.journal.sites()
        log.info(
            "who took part", rounds=number, counted={site: self.watch.took_part[site] for site in roster}
        )
        self._tell_absent()

    def never_counted(self) -> tuple[ClientId, ...]:
        """Registered sites of which the run's result knows nothing, once a round was closed."""
        if not self.watch.took_part:
            return ()
        return tuple(site for site in self._books.journal.sites() if not self.watch.took_part[site])

    def _tell_absent(self) -> None:
        if never := self.never_counted():
            rounds = len(self._books.journal.committed())
            log.error("sites that were counted in no round", sites=list(never), rounds=rounds)
            self._events.add(f"counted in none of {rounds} rounds: {', '.join(never)}", "error")

    def failed(self, words: str) -> None:
        """The run cannot go on. Nothing is logged here, because the caller reports every failure."""
        self.watch.status = "failed"

    async def sum_scores(self, *tasks: Task) -> None:
        """Sum what sites have measured in some tasks, for the curve and the page."""
        self._measure(await score_sums.sum_up(self._journal, self._room, *tasks), tasks[0])

    def _measure(self, total: Scores | None, task: Task) -> None:
        if total is not None:
            self._curve.measure(task.kind, task.round, total)
            self._show(total)

    async def settle(self) -> None:
        """Wait until all rounds are summed, told of and on disk."""
        summing, self._summing = self._summing, None
        if summing is not None:
            await summing

    async def sum_left(self, *tasks: Task) -> None:
        """Sum what a former life of the coordinator has not: killed before, it left the reports. A sum that is there
        is kept; a site that comes again afterwards is not the whole of it.
        """
        if not await score_sums.is_summed(self._journal, self._room, tasks[0]):
            await self.sum_scores(*tasks)

    def _show(self, total: Scores) -> None:
        summaries = {
            name.partition("/")[2]: evaluation.summary(values)
            for name, values in sorted(evaluation.evaluations(total).items())
        }
        self.watch.scores = self._disclosure.limit_scores(summaries)

    def _how_good(self) -> dict[str, float | str]:
        """The accuracy that the status page shows. A round's own value mostly comes a round later, so its round is
        named, and the number of sites: a mean jumps when a site is away.
        """
        newest = self._curve.newest()
        if newest is None or newest.accuracy is None:
            return {}
        if few := evaluation.tell_too_few(newest.measured, self._disclosure.fewest):
            return {"mean_accuracy": few}
        return {
            "mean_accuracy": round(newest.accuracy, 4),
            "measured_after_round": newest.round,
            "measured_by": newest.measured,
        }

    def _ended(self, outcome: str, course: Course) -> None:
        watch, self._opened = self.watch, None
        watch.awaited = ()
        watch.outcomes[outcome] += 1
        watch.seconds[outcome].add(course.ended - course.opened)
        self._lose(course)
        if course.reading is not None:
            # Only now that it is written down: a note on the way must not show the attempt as both over and open.
            self._meter.closed = course.reading


def describe(spec: RunSpec) -> dict[str, JsonValue]:
    """Facts of a run's specification for people."""
    return {
        "backbone": spec.model.backbone,
        "shape": list(spec.model.shape),
        "classes": len(spec.model.classes),
        **spec.asked.told(),
        "settings": dict(spec.settings),
        "sites": len(spec.roster),
        **({"chosen": dict(spec.chosen)} if spec.chosen else {}),
    }


def _begun(books: Books) -> float:
    """The first model is written when a run begins, and never again."""
    try:
        return min(books.shelf.path(books.init.blob.digest).stat().st_mtime, time.time())
    except OSError:
        return time.time()


def _when_measured(key: str) -> tuple[int, bool]:
    """Puts keys of tasks in order: FINISH measures what the training of the last round has made."""
    number, _, kind = key.split("-")
    return int(number), kind == Kind.FINISH


def _kind(reason: str) -> str:
    """The part of a reason before its details: a label with few values."""
    return reason.partition(":")[0]
