"""A run's folder at a site: vault, outbox, serving model, measurements and sent updates. Torch-free."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from pfl_client.connection import partial_file
from pfl_client.envelopes import Envelopes, Letter
from pfl_client.run_folder import space
from pfl_client.run_folder.audit import Audit, Left
from pfl_client.run_folder.outbox import Outbox
from pfl_client.run_folder.serving_model import ServingModel
from pfl_client.run_folder.vault_generations import Owner, Vault
from pfl_client.trainer_process import api
from pfl_client.trainer_process.api import Done, Job, Parcel
from pfl_client.trainer_process.task_errors import DiskFull, Tampered, disk_full
from pfl_common.errors import Refused, StateError
from pfl_common.evaluation import evaluations, shorten, takes_told, tell
from pfl_common.files import atomic
from pfl_common.files.recycler import Blanks
from pfl_common.spec.manifest import full_size
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Joined,
    Mark,
    Offer,
    Receipt,
    Scores,
    Seal,
    header_down,
    header_of_init,
    header_up,
)
from pfl_common.spec.run import ClientId, Header, Kind, RunSpec, Task, parcel_key

REUSED_LIMIT = 256 << 20
"""Opened parcels up to this size stay on the disk between tasks, to be written over: fresh pages cost more."""


class Visit:
    """`<state>/runs/<run>`: opened when the run admits the site, closed when the run is over."""

    def __init__(  # noqa: PLR0913  # what a run at a site is made of, and what of it may be told
        self,
        folder: Path,
        spec: RunSpec,
        site: ClientId,
        *,
        envelopes: Envelopes,
        audit: Audit | None = None,
        tells: bool = True,
    ) -> None:
        """`audit` is the site's list of what leaves; without one it is opened where the site's folder must be."""
        self._tells = tells and takes_told(spec)
        self._folder, self._spec, self._site, self._envelopes = folder, spec, site, envelopes
        self._vault = _open_vault(folder, spec, site)
        try:
            self._blanks = Blanks(folder / "blanks", most=2 * REUSED_LIMIT)
            self._outbox = Outbox(folder / "outbox", envelopes, self._blanks)
            self._outbox.sweep({self._vault.upload} if self._vault.upload else ())
            self._serving = ServingModel(folder / "serving")
            self._downloads = folder / "downloads"
            self._downloads.mkdir(exist_ok=True, mode=0o700)
            self._opened, self._update = self._downloads / "opened.raw", self._downloads / "update.raw"
            for draft in (*self._downloads.glob(".*"), *self._downloads.glob("*.raw")):
                draft.unlink()
            _write_once(folder / "spec.json", spec.to_json())
            self._audit = audit or Audit(folder.parent.parent)
            self._audit.run = spec.id
            self.left = self._audit.left.setdefault(spec.id, Left())
        except BaseException:
            self._vault.close()
            raise

    @property
    def init(self) -> Path:
        """The run's first model, fetched once."""
        return self._folder / "init.raw"

    @property
    def model(self) -> Path | None:
        """The complete model this site predicts with, once there is one."""
        return self._serving.current if self._serving.current.exists() else None

    def close(self) -> None:
        """Let another daemon have the folder; of what was opened nothing stays."""
        self.forget_opened()
        self._vault.close()

    def marks(self) -> tuple[Mark, ...]:
        """The vault's generations, newest first."""
        return self._vault.marks()

    def is_ahead(self, task: Task) -> int:
        """The round this site has reached, if the coordinator trains an earlier one; else 0."""
        newest = max((mark.round for mark in self.marks()), default=0)
        return newest if task.kind is Kind.TRAIN and newest > task.round else 0

    def download(self, blob: Blob) -> Path:
        """Where these bytes are fetched to; a part that is already there is kept."""
        return self._downloads / blob.digest

    def begin_download(self, blob: Blob) -> Path:
        """The same, where bytes of an older one may be written over: fresh pages cost more."""
        file = self.download(blob)
        with disk_full(self._folder):
            partial_file.lay(self._blanks, file, blob.size)
        return file

    def first(self, joined: Joined) -> Letter | None:
        """Who vouches for the run's first model; None: it is here already."""
        note = self._folder / "init.json"
        if self.init.exists() and note.exists() and note.read_bytes() == _note_of(joined):
            return None
        return self._accept(header_of_init(self._spec), joined.init, joined.seal)

    def settle(self, joined: Joined, letter: Letter) -> None:
        """Open the first model where the trainer reads it, once and for all."""
        file, note = self.download(joined.init), self._folder / "init.json"
        note.unlink(missing_ok=True)
        try:
            letter.unpack(file, self.init)
        except Refused as refused:
            file.unlink(missing_ok=True)
            raise _tampered(refused) from None
        # The note says for all times that the model is whole: it must not outlive a model that was not synced.
        atomic.sync(self.init)
        atomic.fill(note, _note_of(joined))
        atomic.settle(self._folder)
        file.unlink(missing_ok=True)

    def letter(self, assignment: Assignment) -> Letter:
        """Who vouches for a download, checked before its first byte: it must be for this task and this site."""
        task, said = assignment.task, assignment.header
        known = parcel_key(task.kind, task.phase, "down") in self._spec.manifests
        header = header_down(self._spec, task, state=said.state) if known else None
        if header is None or said != replace(header, groups=said.groups):
            raise Tampered(
                f"the download of {assignment.key} comes under another header than its task's",
                expected="the header that run, round, attempt and phase give",
                advice="tell the operator: something between coordinator and site mixes parcels up",
            )
        letter = self._accept(said, assignment.blob, assignment.seal)
        # Another task is asked for: what went up for the last one has been counted, or never will be.
        self._outbox.sweep({assignment.key})
        self._keep_word(assignment)
        return letter

    def _keep_word(self, assignment: Assignment) -> None:
        """Keep the coordinator's signature, as evidence should it sign two different parcels under one header."""
        blob, seal = assignment.blob, assignment.seal
        signed = {"digest": blob.digest, "bytes": blob.size, "wrap": seal.wrap.hex()}
        words = {"header": assignment.header.to_json(), "signature": seal.signature.hex()}
        self._note("received.jsonl", {"task": assignment.key, **words, **signed})

    def open(self, letter: Letter, blob: Blob) -> Parcel:
        """The content of a download for the trainer: a large one in a file, which the next is written over."""
        file = self.download(blob)
        try:
            if self._envelopes.plain(blob.size) <= api.MESSAGE_LIMIT:
                return letter.read(file)
            letter.unpack_over(file, self._opened)
            return self._opened
        except Refused as refused:
            file.unlink(missing_ok=True)
            raise _tampered(refused) from None

    def check_room_for_init(self, joined: Joined) -> None:
        """Refuse to begin what the first model, as it comes and opened, has no room for."""
        plain = self._envelopes.plain(joined.init.size)
        space.check(self._folder, self._lacking(joined.init) + plain)

    def check_room(self, assignment: Assignment, *, wary: bool = False) -> None:
        """Refuse to begin a task whose files have no room. What the next state will hold is only known from the
        one before; `wary` counts with a whole model instead, for a site that has run out of room in mid-task.
        """
        try:
            space.check(self._folder, self._needed(assignment, wary=wary))
        except DiskFull:
            self.forget_opened()
            space.check(self._folder, self._needed(assignment, wary=wary))

    def has_room(self, assignment: Assignment) -> bool:
        """Whether a task's files have room, as far as their sizes are known."""
        try:
            self.check_room(assignment)
        except DiskFull:
            return False
        return True

    def _needed(self, assignment: Assignment, *, wary: bool) -> int:
        task, blob = assignment.task, assignment.blob
        model, down = full_size(self._spec.init_manifest), self._envelopes.plain(blob.size)
        needed = self._lacking(blob) + (_growth(self._opened, down) if down > api.MESSAGE_LIMIT else 0)
        if task.kind is Kind.EVALUATE:
            return needed
        kept = self._vault.at(task.since)
        state = kept.stat().st_size if kept is not None else max(0, model - down)
        needed += max(model, state) if wary else state
        if task.kind is Kind.FINISH:
            return needed + model + (model if self._serving.current.exists() else 0)
        up = 0 if task.drop else full_size(self._spec.manifest(task.kind, task.phase, "up"))
        # A large update lies open for a moment beside its sealed form; what is larger still has its download's place.
        given_back = blob.size + down if down > REUSED_LIMIT else 0
        return needed + max(0, up - given_back) + (_growth(self._update, up) if up > api.MESSAGE_LIMIT else 0)

    def _lacking(self, blob: Blob) -> int:
        """The bytes of a download still to be fetched."""
        return _growth(self.download(blob), blob.size)

    def discard(self, assignment: Assignment) -> None:
        """Forget what a task that is not done has written so far: its room is needed."""
        self.clean_up(assignment.blob)
        if self._vault.upload != assignment.key:
            self._outbox.drop(assignment.key)
        for draft in (self._vault.draft, self._serving.draft):
            for path in (draft, draft.with_name(draft.name + ".part")):
                atomic.remove(path)
        # Last: what was forgotten so far is kept among the blanks.
        self.forget_opened()

    def forget_opened(self) -> bool:
        """Give back the room of what is only kept because it is quick to write over; whether there was any."""
        opened = [path for path in (self._opened, self._update) if path.exists()]
        for path in opened:
            atomic.remove(path)
        return self._blanks.clear() > 0 or bool(opened)

    def clean_up(self, blob: Blob) -> None:
        """Forget a download whose task is done."""
        file = self.download(blob)
        self._blanks.give(file)
        partial_file.forget(file)
        for path in (self._opened, self._update):
            if _is_vast(path):
                path.unlink()

    def _make_way(self, blob: Blob) -> None:
        """The trainer has read it all: a download of gigabytes gives its place to the update that is closed now."""
        if _is_vast(self._opened):
            self._opened.unlink()
            partial_file.forget(self.download(blob))

    def _accept(self, header: Header, blob: Blob, seal: Seal) -> Letter:
        try:
            return self._envelopes.receive(header, blob, seal)
        except Refused as refused:
            raise _tampered(refused) from None

    def job(self, assignment: Assignment, down: Parcel) -> Job:
        """The trainer's input for the task."""
        task = assignment.task
        return Job(
            task=task,
            down=down,
            groups=assignment.header.groups,
            kept=self._vault.at(task.since),
            keep_as=self._vault.draft,
            serve_as=self._serving.draft if task.kind is Kind.FINISH else None,
            parcel_as=self._update,
        )

    def has_answer(self, key: str, task: Task) -> bool:
        """Whether this task was done before a restart: then it is answered, not done again."""
        done = self.marks()[:1] == (Mark(task.round, task.attempt),)
        if task.kind is not Kind.TRAIN or not done:
            return False
        return task.drop or self._outbox.entry(key) is not None

    def keep(self, assignment: Assignment, done: Done) -> None:
        """Make a finished task last, before anything of it is sent: its generation and its upload together."""
        with disk_full(self._folder):
            self._keep(assignment, done)

    def _keep(self, assignment: Assignment, done: Done) -> None:
        task, key = assignment.task, assignment.key
        told = tell(done.metrics) if task.kind is Kind.TRAIN else {}
        (self._folder / "scores.json").write_text(json.dumps({key: done.scores | told}))
        self._note("history.jsonl", {"task": key, "scores": shorten(done.scores), "metrics": done.metrics})
        if task.kind is Kind.FINISH:
            self._serving.commit()
        elif task.kind is Kind.TRAIN:
            if done.up is not None:
                self._make_way(assignment.blob)
                self._post(assignment, done, done.up)
            mark = Mark(task.round, task.attempt)
            upload = None if done.up is None else key
            self._vault.commit(mark, self._vault.draft, upload, since=task.since)
            self._outbox.sweep({key} if upload else ())

    def scores(self, key: str) -> Scores:
        """The evaluation to report for this task; it is on disk, so that a kill before the report does not lose it."""
        try:
            measured: dict[str, Scores] = json.loads((self._folder / "scores.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        report = measured.get(key, {})
        return report if self._tells else evaluations(report)

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

    def announce(self, offer: Offer) -> None:
        """List what is about to leave the building: no update leaves that is not listed."""
        self._audit.announce(self._spec, offer)

    def audit(self, offer: Offer, receipt: Receipt) -> None:
        """List the coordinator's own word for what left."""
        said = (receipt.run, receipt.key, receipt.site, receipt.digest)
        if said != (self._spec.id, offer.key, self._site, offer.blob.digest):
            raise Refused(
                "seal", f"a receipt for {said}; expected: for the update of {offer.key} as it was sent"
            )
        self._envelopes.confirm(receipt)
        signature = receipt.signature.hex()
        self._audit.receive(
            self._spec.id, offer.key, receipt.digest, size=offer.blob.size, signature=signature
        )
        self._audit.settle()

    def _post(self, assignment: Assignment, done: Done, update: Parcel) -> None:
        header = header_up(self._spec, assignment.task, self._site, state=assignment.header.state)
        self._outbox.store(assignment.key, replace(header, groups=done.groups), update)

    def _note(self, file: str, line: dict[str, object]) -> None:
        text = json.dumps(line, sort_keys=True) + "\n"
        with disk_full(self._folder):
            atomic.append(self._folder / file, text.encode())


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
    """In what a specification differs from the one that was kept of a run of the same name."""
    try:
        before = json.loads(kept.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return ""
    now = json.loads(spec.to_json())
    return ", ".join(sorted(name for name, value in now.items() if before.get(name) != value))


def _is_vast(file: Path) -> bool:
    return file.exists() and file.stat().st_size > REUSED_LIMIT


def _growth(file: Path, size: int) -> int:
    """The bytes that a file still needs to reach `size`."""
    return max(0, size - (file.stat().st_size if file.exists() else 0))


def _write_once(path: Path, text: str) -> None:
    """A disk that is full must not cost what was written there before."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _note_of(joined: Joined) -> bytes:
    return json.dumps(joined.init.digest).encode()


def _tampered(refused: Refused) -> Tampered:
    return Tampered(
        f"a download is not what the coordinator sealed for this site: {refused.words}",
        expected="its own bytes, under its signature",
        advice="tell the operator: something between coordinator and site changes what passes",
    )
