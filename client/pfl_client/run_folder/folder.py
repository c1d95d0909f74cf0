"""A run's folder at a site, `<state>/runs/<run>`: its parts, and the steps of a task that change several of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pfl_client.envelopes import Envelopes, Letter
from pfl_client.run_folder.audit import Audit
from pfl_client.run_folder.best_round_kept import BestRound
from pfl_client.run_folder.download_header import check_header, crosses_as_delta, find_manifest
from pfl_client.run_folder.downloads import REUSED_LIMIT, Downloads
from pfl_client.run_folder.earlier_run import find_earlier
from pfl_client.run_folder.first_model import FirstModel
from pfl_client.run_folder.measurements import Measurements
from pfl_client.run_folder.outbox import Outbox
from pfl_client.run_folder.outgoing_names import check_names, list_names, read_names
from pfl_client.run_folder.serving_model import ServingModel
from pfl_client.run_folder.space import Space
from pfl_client.run_folder.validation_share import settle_share
from pfl_client.run_folder.vault_generations import Owner, Vault
from pfl_client.trainer_process.api import Done, Job, Parcel
from pfl_client.trainer_process.task_errors import Tampered, disk_full
from pfl_common.app.prompt_work import PROMPT_BYTES
from pfl_common.errors import Refused, StateError
from pfl_common.evaluation import takes_told
from pfl_common.files import atomic
from pfl_common.files.recycler import Blanks
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.messages import Assignment, Mark, Offer, Receipt, header_up
from pfl_common.spec.run import ClientId, Kind, RunSpec, Task, parcel_key

MOST_ATTEMPTS = 10_000
"""Of one round: a coordinator gives a run up long before, unless it is started again and again."""


class RunFolder:
    """Opened when the run admits the site, closed when the run is over."""

    def __init__(  # noqa: PLR0913  # what a run at a site is made of, and what of it may be told
        self,
        folder: Path,
        spec: RunSpec,
        site: ClientId,
        *,
        envelopes: Envelopes,
        audit: Audit | None = None,
        tells: bool = True,
        validation: float | None = None,
    ) -> None:
        """`audit` is the site's list of what leaves; without one it is opened where the site's folder must be.
        `validation` is the share of its training samples that the site itself asks to validate on.
        """
        self._folder, self.spec, self._site, self._envelopes = folder, spec, site, envelopes
        self.vault = _open_vault(folder, spec, site)
        try:
            blanks = Blanks(folder / "blanks", most=2 * REUSED_LIMIT)
            self._outbox = Outbox(folder / "outbox", envelopes, blanks)
            self._outbox.sweep({self.vault.upload} if self.vault.upload else ())
            self._serving = ServingModel(folder / "serving")
            self._best = BestRound(folder / "best") if spec.keep == "best" else None
            self.downloads = Downloads(folder, envelopes, blanks)
            _write_once(folder / "spec.json", spec.to_json())
            self._audit = audit or Audit(folder.parent.parent)
            self._audit.run = spec.id
            with disk_full(folder):
                begun = bool(self.vault.marks())
                self.validation = settle_share(folder, spec, validation, begun=begun)
        except BaseException:
            self.vault.close()
            raise
        self._earlier = find_earlier(folder.parent, spec, site)
        self.first_model = FirstModel(folder, spec, self.downloads)
        self.measurements = Measurements(folder, tells=tells and takes_told(spec))
        self.space = Space(folder, spec, downloads=self.downloads, vault=self.vault, serving=self._serving)

    @property
    def model(self) -> Path | None:
        """The complete model this site predicts with, once there is one."""
        return self._serving.current if self._serving.current.exists() else None

    @property
    def best_model(self) -> Path | None:
        """The complete model of the best round, once the run is over and if it keeps one."""
        return self._serving.best if self._serving.best.exists() else None

    def marks(self) -> tuple[tuple[Mark, ...], tuple[Mark, ...]]:
        """The generations of this site's own state, of this run and of the one that it begins from."""
        return self.vault.marks(), self._earlier.marks() if self._earlier else ()

    def _kept(self, task: Task) -> Path | None:
        """The state that a task starts from; None: this site never took part."""
        if task.since == 0 and task.before and self._earlier is not None:
            return self._earlier.at(task.before)
        return self.vault.at(task.since)

    def close(self) -> None:
        """Let another daemon have the folder; of what was opened nothing stays."""
        self.downloads.forget_opened()
        self.vault.close()

    def letter(self, assignment: Assignment) -> Letter:
        """Who vouches for a download, checked before its first byte: it must be for this task and this site."""
        task, said = assignment.task, assignment.header
        self._check_task(task)
        check_header(self.spec, assignment)
        letter = self.downloads.accept(said, assignment.blob, assignment.seal)
        self.downloads.check_size(assignment.blob, find_manifest(self.spec, task, said))
        # Another task is asked for: what went up for the last one has been counted, or never will be.
        self._outbox.sweep({assignment.key})
        self.downloads.keep_word(assignment)
        return letter

    def _check_task(self, task: Task) -> None:
        """The specification said how many rounds there are: that many this site trains, and no others."""
        if task.round > self.spec.rounds or task.attempt > MOST_ATTEMPTS:
            raise Tampered(
                f"the coordinator gives the task {task.key} in a run of {self.spec.rounds} rounds",
                expected=f"rounds of the run, each tried at most {MOST_ATTEMPTS} times",
                advice="tell the operator: this coordinator is not to be trusted, or of another release",
            )

    def job(self, assignment: Assignment, down: Parcel) -> Job:
        """The trainer's input for the task."""
        task, header = assignment.task, assignment.header
        is_last = task.kind is Kind.FINISH
        written = self._serving.best_draft if is_last else None
        return Job(
            task=task,
            down=down,
            groups=header.groups,
            kept=self._kept(task),
            keep_as=self.vault.draft,
            serve_as=self._serving.draft if is_last else None,
            parcel_as=self.downloads.place_for_update(self._upward(task)),
            best=None if self._best is None else self._best.so_far(task.since, write_as=written),
            as_delta=crosses_as_delta(self.spec, task, header),
            sent=header.sent,
        )

    def _upward(self, task: Task) -> Manifest:
        return self.spec.manifests.get(parcel_key(task.kind, task.phase, "up"), ())

    def keeps_promptly(self, assignment: Assignment, done: Done) -> bool:
        """Whether to make a finished task last takes microseconds: its update is small, and nothing is synced."""
        if assignment.task.kind is not Kind.TRAIN or self._best is not None or isinstance(done.up, Path):
            return False
        return (done.up is None or len(done.up) <= PROMPT_BYTES) and self.vault.draft_is_empty

    def keep(self, assignment: Assignment, done: Done) -> None:
        """Make a finished task last, before anything of it is sent: its generation and its upload together."""
        task = assignment.task
        with disk_full(self._folder):
            self.measurements.keep(assignment, done)
            if task.kind is Kind.FINISH:
                self._serving.commit(best=done.best is not None)
                return
            if self._best is not None:
                self._best.commit(task, done.best)
            if task.kind is Kind.TRAIN:
                upload = None if done.up is None else self._post(assignment, done, done.up)
                mark = Mark(task.round, task.attempt)
                self.vault.commit(mark, self.vault.draft, upload, since=task.since)
                self._outbox.sweep({upload} if upload else ())

    def _post(self, assignment: Assignment, done: Done, update: Parcel) -> str:
        """Seal an update into the outbox; gives its key there."""
        self._check_names(assignment.task, done)
        self.downloads.make_way(assignment.blob)
        task, state = assignment.task, assignment.header.state
        header = header_up(self.spec, task, self._site, state=state, groups=done.groups)
        self._outbox.store(task.key, header, update)
        return task.key

    def _check_names(self, task: Task, done: Done) -> None:
        spec = self.spec
        # What every site is sent is nobody's own, also where a method keeps its own values of it.
        kept = read_names(self.vault.draft) - list_names(spec.manifest(task.kind, task.phase, "down"))
        manifest, known = spec.manifest(task.kind, task.phase, "up"), list_names(spec.init_manifest)
        check_names(manifest, done.groups, kept=kept, told=done.told, known=known)

    def has_answer(self, key: str, task: Task) -> bool:
        """Whether this task was done before a restart: then it is answered, not done again."""
        done = self.vault.marks()[:1] == (Mark(task.round, task.attempt),)
        if task.kind is not Kind.TRAIN or not done:
            return False
        return task.drop or self._outbox.entry(key) is not None

    def discard(self, assignment: Assignment) -> None:
        """Forget what a task that is not done has written so far: its room is needed."""
        self.downloads.clean_up(assignment.blob)
        if self.vault.upload != assignment.key:
            self._outbox.drop(assignment.key)
        drafts = [self.vault.draft, self._serving.draft, self._serving.best_draft]
        for draft in (*drafts, *([] if self._best is None else [self._best.draft])):
            for path in (draft, draft.with_name(draft.name + ".part")):
                atomic.remove(path)
        # Last: what was forgotten so far is kept among the blanks.
        self.downloads.forget_opened()

    def upload(self, key: str) -> tuple[Offer, Path]:
        """The update that goes up for this task."""
        entry = self._outbox.entry(key)
        if entry is None:
            raise StateError(
                f"the outbox in {self._folder} lost the update of {key}",
                expected="the bytes that were just written",
                advice="look at the disk: something else removes or damages files there",
            )
        return entry.offer, entry.parcel

    def announce(self, offer: Offer, also: Callable[[], None] = lambda: None) -> None:
        """List what is about to leave the building, and what goes with it: no update leaves that is not listed."""
        self._audit.announce(self.spec, offer, also)

    def audit(self, offer: Offer, receipt: Receipt) -> None:
        """List the coordinator's own word for what left."""
        said = (receipt.run, receipt.key, receipt.site, receipt.digest)
        if said != (self.spec.id, offer.key, self._site, offer.blob.digest):
            raise Refused(
                "seal", f"a receipt for {said}; expected: for the update of {offer.key} as it was sent"
            )
        self._envelopes.confirm(receipt)
        signature = receipt.signature.hex()
        self._audit.receive(
            self.spec.id, offer.key, receipt.digest, size=offer.blob.size, signature=signature
        )


def _open_vault(folder: Path, spec: RunSpec, site: ClientId) -> Vault:
    try:
        return Vault(folder, Owner(spec.id, spec.hash, site))
    except StateError as error:
        changed = _changes(folder / "spec.json", spec)
        if not changed:
            raise
        raise StateError(
            f"run {spec.id} is not the one this site took part in: {changed} were others",
            expected="the same run, or another one under a name of its own",
            advice="tell the operator: the coordinator has lost its runs and begun to count anew (another --seed gives "
            "the run another name), or is not to be trusted; to leave the old run behind at this site, move "
            f"{folder} away",
        ) from error


def _changes(kept: Path, spec: RunSpec) -> str:
    """The differences of a specification from the one kept for a run of the same name."""
    try:
        before = json.loads(kept.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return ""
    now = json.loads(spec.to_json())
    return ", ".join(sorted(name for name, value in now.items() if before.get(name) != value))


def _write_once(path: Path, text: str) -> None:
    """A disk that is full must not cost what was written there before."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
