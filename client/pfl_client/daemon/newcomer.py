"""A site that comes after the run, or beside it: fetches the shared state, fits its own part to it, and is done.

It takes part in no round and hands nothing in: neither an update nor scores, and nothing is said of its data.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from pfl_client.connection.link import Link, Traffic
from pfl_client.daemon.fetching import Fetching
from pfl_client.daemon.progress import AFTER, BEFORE, SiteProgress
from pfl_client.daemon.retry import Retry
from pfl_client.daemon.run_check import hear_run
from pfl_client.daemon.site_data import SiteData
from pfl_client.daemon.status import Watch
from pfl_client.envelopes import Envelopes
from pfl_client.policy.gate import Gate
from pfl_client.policy.rules import Policy
from pfl_client.run_folder.audit import Audit
from pfl_client.run_folder.folder import RunFolder
from pfl_client.trainer_process.api import Bench, DataFolder, Done, TrainerLost
from pfl_client.trainer_process.task_errors import DiskFull, Tampered, disk_full
from pfl_common.app import plugins
from pfl_common.app.backoff import BackOff
from pfl_common.errors import Refused, RunFailed, StateError
from pfl_common.spec.messages import Assignment, Over, Visited
from pfl_common.spec.run import Description, Json, Kind, RunSpec

log = structlog.get_logger("pfl.site")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
_GONE = "unknown_blob"
"""The run went on, and the state this site was told of is not kept any more."""


class Newcomer:
    """One site: one data folder, one trainer, one line to the coordinator."""

    def __init__(  # noqa: PLR0913  # all that a site is made of
        self,
        folder: DataFolder,
        *,
        link: Link,
        bench: Bench,
        envelopes: Envelopes,
        state: Path,
        description: Description | None = None,
        traffic: Traffic | None = None,
        audit: Audit | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._link, self._bench, self._envelopes, self._state = link, bench, envelopes, state
        self._audit, self._data = audit or Audit(state), SiteData(folder, description)
        self._gate = Gate(policy or Policy(), self._audit)
        self.watch = Watch(folder.site, left=self._audit.left)
        self.progress = SiteProgress(self.watch, traffic)
        self._retry = Retry(self.watch, state)
        self._fetching = Fetching(link, self._retry, self.watch, state)

    async def run(self) -> Over:
        """Fetch and fit; from then on this site predicts with its model, which lies in the run's folder."""
        pauses = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        try:
            self.watch.doing = "reading data"
            # Looked at before anybody is asked for anything; of what is seen nothing is told.
            await self._data.describe(self._bench, self._envelopes, self._retry)
            while True:
                visited = await self._visit(pauses)
                try:
                    await self._take(visited)
                    return Over("finished")
                except Refused as refused:
                    if refused.code != _GONE:
                        raise
                    log.warning("the run went on meanwhile, asking for its newer state")
                    await asyncio.sleep(pauses.take())
        finally:
            with suppress(DiskFull):
                self._audit.settle()
            await self._bench.close()

    async def _visit(self, pauses: BackOff) -> Visited:
        self.watch.doing, said = "joining", False
        while True:
            visited = await self._retry.until_answered(self._link.visit)
            if visited is not None:
                return visited
            if not said:
                log.info("the coordinator has no state to fit to yet, waiting for the first round of a run")
            said = True
            await asyncio.sleep(pauses.take())

    async def _take(self, visited: Visited) -> None:
        """Everything after the answer: the first model, the state, the fit, the model in service."""
        joined, last, spec = visited.joined, visited.last, hear_run(visited.joined)
        _check_kind(last)
        self._gate.enter(spec)
        plugins.check_pinned(spec)
        self._envelopes.meet(joined.card)
        self._audit.meet(spec.id, joined.card)
        folder = await self._retry.until_room(lambda: self._open(spec))
        try:
            self.watch.enter(spec)
            letter = folder.first_model.accept(joined)
            if letter is not None:
                await self._fetching.bring_first_model(folder, joined, letter)
            self.watch.doing = "reading data"
            await self._retry.with_trainer(
                lambda: self._bench.open(self._data.folder, joined.spec, folder.first_model.file)
            )
            done = await self._fit(folder, last)
            self.watch.doing = "over"
            self._tell(folder, spec, last, done)
        finally:
            folder.close()

    async def _open(self, spec: RunSpec) -> RunFolder:
        path, site = self._state / "runs" / spec.id, self._data.folder.site
        folder = RunFolder(path, spec, site, envelopes=self._envelopes, audit=self._audit)
        if folder.vault.marks():
            folder.close()
            raise StateError(
                f"{site} has trained in run {spec.id}: its own part is that of its rounds",
                expected="a site that was in no round of the run",
                advice="start it without --personalize-only: at the run's end it gets its model; or give other data "
                "another name with --name",
            )
        return folder

    async def _fit(self, folder: RunFolder, last: Assignment) -> Done:
        task, blob, letter = last.task, last.blob, folder.letter(last)
        await asyncio.to_thread(folder.space.check, last)
        self.watch.begin(task)
        self.progress.begin(task)
        with self.watch.phase("download"):
            file = await asyncio.to_thread(folder.downloads.begin, blob)
            await self._fetching.bring(blob, file, kind=task.kind, by=folder.spec.digests)

        async def work() -> Done:
            with disk_full(self._state):
                down = await asyncio.to_thread(folder.downloads.open, letter, blob)
                self.watch.give(task)
                return await self._bench.work(replace(folder.job(last, down), alone=True), self.watch.move)

        try:
            done = await self._retry.with_trainer(work)
        except TrainerLost as lost:
            raise RunFailed(
                f"the trainer ended twice while it fitted the model: {lost}\n"
                "  what to do: look at its last words in the log above, and at this machine's free memory"
            ) from None
        with self.watch.phase("seal"):
            await asyncio.to_thread(folder.keep, last, done)
        folder.downloads.clean_up(blob)
        self.watch.learn(task, done)
        return done

    def _tell(self, folder: RunFolder, spec: RunSpec, last: Assignment, done: Done) -> None:
        measured = {"accuracy_as_received": BEFORE, "accuracy": AFTER}
        told: dict[str, Json] = {
            name: round(done.scores[key][2], 4) for name, key in measured.items() if key in done.scores
        }
        log.info(
            "fitted to the shared state",
            run=spec.id,
            method=spec.method,
            after_round=last.task.round,
            model=str(folder.model),
            **told,
            **self.progress.account(),
        )


def _check_kind(last: Assignment) -> None:
    task = last.task
    if task.kind is not Kind.FINISH or task.since or task.drop:
        raise Tampered(
            f"the coordinator answers a visit with the task {task.key}",
            expected="a FINISH for a site that was in no round",
            advice="tell the operator: this coordinator is not to be trusted, or of another release",
        )
