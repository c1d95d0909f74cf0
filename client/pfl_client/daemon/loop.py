"""THE STORY of a site: join, take a task, give it to the trainer, hand the result in, back off, stop gently.

Without torch: a training step never delays a heartbeat, and an idle site stays small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from pfl_client.connection.link import Link, NotAdmitted, Traffic, Unreachable
from pfl_client.daemon.fetching import Fetching
from pfl_client.daemon.handing_in import HandingIn
from pfl_client.daemon.heartbeat import Heart
from pfl_client.daemon.progress import SiteProgress, tell_joined
from pfl_client.daemon.retry import Retry
from pfl_client.daemon.run_check import hear_run
from pfl_client.daemon.run_summary import tell_end, tell_hindrances
from pfl_client.daemon.site_data import SiteData
from pfl_client.daemon.status import Watch
from pfl_client.envelopes import Envelopes, Letter
from pfl_client.policy.gate import Gate
from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.rules import Policy
from pfl_client.run_folder.audit import Audit
from pfl_client.run_folder.folder import RunFolder
from pfl_client.trainer_process.api import Bench, DataFolder, Done, Parcel, TrainerLost
from pfl_client.trainer_process.task_errors import Declined, DiskFull, disk_full
from pfl_common.app import plugins
from pfl_common.app.prompt_work import PROMPT_BYTES, work_on
from pfl_common.errors import DataError, PflError, Refused, UserError
from pfl_common.files.recycler import throw_away
from pfl_common.spec.messages import OPENING, Assignment, Gathering, Joined, Over
from pfl_common.spec.run import Description, RunSpec

log = structlog.get_logger("pfl.site")

GOODBYE_SECONDS = 3.0
SAY_WAITING_SECONDS = 1800.0
"""How often a run that has not begun is worth a line."""


class Daemon:
    """One site: one data folder, one trainer, one line to the coordinator."""

    def __init__(  # noqa: PLR0913  # all that a site is made of, whether it stays and what it tells
        self,
        folder: DataFolder,
        *,
        link: Link,
        bench: Bench,
        envelopes: Envelopes,
        state: Path,
        stays: bool = False,
        tells: bool = True,
        description: Description | None = None,
        traffic: Traffic | None = None,
        audit: Audit | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._link, self._bench, self._envelopes = link, bench, envelopes
        self._state, self._stays, self._tells = state, stays, tells
        self._audit, self._data = audit or Audit(state), SiteData(folder, description)
        self._gate = Gate(policy or Policy(), self._audit)
        self.watch = Watch(folder.site, left=self._audit.left)
        self.progress = SiteProgress(self.watch, traffic)
        self._retry = Retry(self.watch, state)
        self._fetching = Fetching(link, self._retry, self.watch, state)
        self._handing_in = HandingIn(link, self._gate, self._retry, self.watch, self._audit)
        self.comes_back = False
        """The daemon will be started again: it says no goodbye, and its round waits for it as after a crash."""

    async def run(self) -> Over:
        """Take part until the coordinator says that the run is over; a site that stays waits for the next one."""
        try:
            await asyncio.to_thread(throw_away, (self._state / "runs").glob("*/blanks"))
            self.watch.doing, over = "reading data", None
            description = await self._data.describe(self._bench, self._envelopes, self._retry)
            while over is None:
                joined = await self._join(description)
                over = await self._take_part(joined, hear_run(joined))
                if over is None:
                    await self._retry.calm(0.0)
            return over
        finally:
            # A goodbye is a courtesy: a coordinator that does not hear it in time notices the silence.
            await self._handing_in.end()
            goodbye = self._link.pause if self.comes_back else self._link.leave
            with suppress(TimeoutError, Unreachable, NotAdmitted, PflError):
                await asyncio.wait_for(goodbye(), GOODBYE_SECONDS)
            with suppress(DiskFull):
                self._audit.settle()
            await self._bench.close()

    async def _take_part(self, joined: Joined, spec: RunSpec) -> Over | None:
        """Take part in one run, from joining to its end; None when the coordinator has another run by now. A site that
        stays rests at the end, and goes on if the run does: a failed run may be tried again.
        """
        await self._enter_by_policy(spec)
        plugins.check_pinned(spec)
        self._envelopes.meet(joined.card)
        self._audit.meet(spec.id, joined.card)
        folder = await self._retry.until_room(lambda: self._open(spec))
        try:
            tell_joined(spec)
            self._data.compare(spec)
            key = OPENING
            while True:
                await self._enter(folder, spec, joined, key=key)
                over = await self._serve(folder)
                if not self._stays:
                    return over
                key = await self._rest(folder)
        except Refused as refused:
            if refused.code != "not_joined":
                raise
            log.warning("the coordinator does not know this site any more, joining again")
            return None
        finally:
            folder.close()

    async def _enter_by_policy(self, spec: RunSpec) -> None:
        """A run that this site's policy forbids is declined as a whole, before anything is fetched for it."""
        try:
            self._gate.enter(spec)
        except Forbidden as forbidden:
            # A coordinator of an older release does not know this word, and hears the goodbye that follows.
            await self._decline(OPENING, forbidden.reason, forbidden)
            raise

    async def _open(self, spec: RunSpec) -> RunFolder:
        path, data = self._state / "runs" / spec.id, self._data.folder
        return RunFolder(
            path,
            spec,
            data.site,
            envelopes=self._envelopes,
            audit=self._audit,
            tells=self._tells,
            validation=data.validation,
        )

    async def _join(self, description: Description) -> Joined:
        """Say what the data look like and wait for the run to begin."""
        joined, failed, told, said = None, False, float("-inf"), set[str]()
        self._audit.run = ""
        clock = asyncio.get_running_loop().time
        # A site that rests only looks whether there is another run.
        self.watch.doing = "over" if self.watch.doing == "over" else "joining"
        while not isinstance(joined, Joined):
            asked = clock()
            try:
                ask = partial(self._link.join, self._gate.describe(description))
                joined = await self._retry.until_answered(ask)
                self.watch.doing = "joining"
                if self._lacks_sums(joined, description):
                    description = await self._data.sum_up(self._bench, self._envelopes, self._retry)
                    continue
                said = tell_hindrances(joined, said)
                if not isinstance(joined, Joined):
                    await self._retry.calm(clock() - asked)
                if joined is None and clock() - told >= SAY_WAITING_SECONDS:
                    log.info("let in, waiting for the run to begin")
                    told = clock()
            except NotAdmitted as refusal:
                if not self._stays or refusal.code != "run_failed":
                    raise
                if not failed:
                    log.warning("the run has failed, waiting for the next one", why=str(refusal))
                self.watch.doing, failed = "over", True
                await asyncio.sleep(self._retry.longest)
        return joined

    def _lacks_sums(self, joined: Joined | Gathering | None, description: Description) -> bool:
        """Whether the coordinator waits for sums over the pictures; they are made once, however often it asks."""
        asked = isinstance(joined, Gathering) and joined.sums
        return asked and description.moments is None and not self._data.folder.sums

    async def _enter(self, folder: RunFolder, spec: RunSpec, joined: Joined, *, key: str) -> None:
        """Get everything ready for the first task, or for the one with this key."""
        self.watch.enter(spec)
        letter = folder.first_model.accept(joined)
        hides = self._gate.hides_counts
        first = folder.downloads.file(joined.init)
        async with Heart(self._link, key, first, at_work=key != OPENING, hides=hides):
            if letter is not None:
                await self._fetching.bring_first_model(folder, joined, letter)
            self.watch.doing = "reading data"
            data = replace(self._data.folder, validation=folder.validation)
            await self._retry.with_trainer(
                lambda: self._bench.open(data, joined.spec, folder.first_model.file)
            )
        self._retry.fit(spec.lease_seconds)

    async def _serve(self, folder: RunFolder) -> Over:
        answer: Assignment | Over | None = None
        while True:
            answer = answer or await self._ask_for_work(folder)
            if isinstance(answer, Over):
                self.watch.doing = "over"
                measured = {name: round(value, 4) for name, value in sorted(self.watch.run.accuracy.items())}
                tell_end(answer, folder, measured | self.progress.account(), stays=self._stays)
                return answer
            answer = await self._take(folder, answer)

    async def _rest(self, folder: RunFolder) -> str:
        """Ask now and then whether the run goes on; then gives the key of the task that waits, if there is one."""
        # Nobody knows when there is work again: the trainer's memory is others' until then.
        await self._bench.close()
        await asyncio.to_thread(folder.downloads.forget_opened)
        while True:
            await asyncio.sleep(self._retry.longest)
            answer = await self._retry.until_answered(lambda: self._link.next_task(*folder.marks()))
            if not isinstance(answer, Over):
                return answer.key if answer else OPENING

    async def _ask_for_work(self, folder: RunFolder) -> Assignment | Over:
        answer, clock = None, asyncio.get_running_loop().time
        with self.watch.phase("wait"):
            while answer is None:
                asked = clock()
                answer = await self._retry.until_answered(lambda: self._link.next_task(*folder.marks()))
                if answer is None:
                    await self._retry.calm(clock() - asked)
        return answer

    async def _take(self, folder: RunFolder, assignment: Assignment) -> Assignment | Over | None:
        """One task, from its download to its receipt; whatever goes wrong, the coordinator is told in one word. Gives
        the next task if that came with the receipt.
        """
        task = assignment.task
        self.watch.begin(task)
        self.progress.begin(task)
        log.info("task", kind=task.kind.value, round=task.round, attempt=task.attempt)
        if newest := folder.vault.is_ahead(task):
            ours, theirs = {"this_site_was_at_round": newest}, {"goes_on_from_round": task.since}
            log.warning("the coordinator was brought back from an older copy", **ours, **theirs)
        try:
            self._gate.begin(folder.spec, task)
            if folder.has_answer(assignment.key, task):
                # Trained before a kill or a lost line: the same bytes go up again.
                await self._retry.calm(0.0)
            else:
                await self._work(folder, assignment)
            following = await self._handing_in.hand_in(folder, assignment)
            self.progress.end(task, folder.measurements.report(assignment.key))
            self._retry.went_well()
            return following
        except DiskFull as full:
            await self._stop_short(folder, assignment, full)
            return None
        except Declined as declined:
            await self._decline(assignment.key, declined.reason, declined)
        except DataError as changed:
            await self._decline(assignment.key, "data_changed", changed)
        except TrainerLost as lost:
            await self._decline(assignment.key, "trainer_failed", lost)
        except Refused as refused:
            # Too late, or already known there: the next task will say what counted.
            self.watch.refuse(refused.code)
            log.warning("not taken", task=assignment.key, code=refused.code, words=refused.words)
            if refused.code == "late":
                return None
        await self._retry.pause_in_vain()
        return None

    async def _stop_short(self, folder: RunFolder, assignment: Assignment, full: DiskFull) -> None:
        """Decline a task for want of room, and take no other until there is room for one of its size."""
        await asyncio.to_thread(folder.discard, assignment)
        # By the sizes it should have had room: a quota, others who write, a state larger than thought.
        wary = folder.space.suffices(assignment)
        await self._decline(assignment.key, full.reason, full)
        await self._retry.pause_in_vain()
        await self._retry.until_room(
            partial(asyncio.to_thread, folder.space.check, assignment, wary=wary),
            folder.downloads.forget_opened,
        )

    async def _work(self, folder: RunFolder, assignment: Assignment) -> None:
        # First of all who sent it: until then its sizes are anybody's words.
        blob, letter = assignment.blob, folder.letter(assignment)
        # A large one in threads: removing or cutting what was kept for speed may take its time.
        await work_on(blob.size, folder.space.check, assignment)
        hides = self._gate.hides_counts
        async with Heart(self._link, assignment.key, folder.downloads.file(blob), hides=hides) as heart:
            with self.watch.phase("download"):
                held = self._link.take_beside(blob, folder.spec.digests)
                if not held:
                    file = await work_on(blob.size, folder.downloads.begin, blob)
                    await self._fetch(folder, assignment, letter, file)
            open_download = partial(self._open_download, folder, assignment, letter, held, heart)
            done = await self._retry.with_trainer(
                lambda: self._train(folder, assignment, open_download, heart)
            )
            with self.watch.phase("seal"):
                if folder.keeps_promptly(assignment, done):
                    folder.keep(assignment, done)
                else:
                    await heart.during(folder.keep, assignment, done)
        if not held:
            folder.downloads.clean_up(blob)
        self.watch.learn(assignment.task, done)

    async def _fetch(self, folder: RunFolder, assignment: Assignment, letter: Letter, file: Path) -> None:
        blob, kind, by = assignment.blob, assignment.task.kind, folder.spec.digests
        with disk_full(self._state), folder.downloads.opening(letter, blob) as tap:
            await self._fetching.bring(blob, file, kind=kind, by=by, tap=tap)

    async def _train(
        self,
        folder: RunFolder,
        assignment: Assignment,
        open_download: Callable[[], Awaitable[Parcel]],
        heart: Heart,
    ) -> Done:
        # Opened for each try: what a trainer that died had begun to answer may lie where it was.
        with disk_full(self._state):
            with self.watch.phase("open"):
                down = await open_download()
            self.watch.give(assignment.task)

            def move(samples: int) -> None:
                heart.beat(samples)
                self.watch.move(samples)

            return await self._bench.work(folder.job(assignment, down), move)

    async def _open_download(
        self, folder: RunFolder, assignment: Assignment, letter: Letter, held: bytes, heart: Heart
    ) -> Parcel:
        """`held` is all of it, if it came with its task."""
        if held:
            return folder.downloads.open_held(letter, held)
        if assignment.blob.size <= PROMPT_BYTES:
            return folder.downloads.open(letter, assignment.blob)
        return await heart.during(folder.downloads.open, letter, assignment.blob)

    async def _decline(self, key: str, reason: str, error: Exception) -> None:
        self.watch.decline(reason)
        seen, words = error.seen if isinstance(error, UserError) else str(error), self._gate.explain(error)
        log.error("task declined", task=key, reason=reason, words=seen)
        with suppress(Refused):
            await self._retry.until_answered(lambda: self._link.decline(key, reason, words))
