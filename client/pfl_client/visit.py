"""A run at this site, on disk: its vault, its outbox, its serving model, and what was measured and sent. No torch."""

from __future__ import annotations

import json
from pathlib import Path

from pfl_client.bench import Done, Job, Parcel
from pfl_client.outbox import Outbox
from pfl_client.vault import Owner, ServingModel, Vault
from pfl_common.errors import StateError
from pfl_common.messages import Assignment, Blob, Mark, Offer, Receipt, Scores
from pfl_common.run import ClientId, Header, Kind, RunSpec, Task, manifest_hash


class Visit:
    """`<state>/runs/<run>`: open it when the run takes the site in, close it when the run is over."""

    def __init__(self, folder: Path, spec: RunSpec, site: ClientId) -> None:
        self._folder, self._spec, self._site = folder, spec, site
        self._vault = Vault(folder, Owner(spec.id, spec.hash, site))
        self._outbox = Outbox(folder / "outbox")
        self._outbox.sweep({self._vault.upload} if self._vault.upload else ())
        self._serving = ServingModel(folder / "serving")
        (folder / "downloads").mkdir(exist_ok=True, mode=0o700)
        (folder / "spec.json").write_text(spec.to_json())

    @property
    def init(self) -> Path:
        """The run's first model, fetched once."""
        return self._folder / "init.raw"

    @property
    def model(self) -> Path | None:
        """The complete model this site predicts with, once there is one."""
        return self._serving.current if self._serving.current.exists() else None

    def close(self) -> None:
        """Let another daemon have the folder."""
        self._vault.close()

    def marks(self) -> tuple[Mark, ...]:
        """The vault's generations, newest first."""
        return self._vault.marks()

    def download(self, blob: Blob) -> Path:
        """Where these bytes are fetched to; a part that is already there is kept."""
        return self._folder / "downloads" / blob.digest

    def job(self, assignment: Assignment, down: Parcel) -> Job:
        """What the trainer needs to do the task."""
        task = assignment.task
        return Job(
            task=task,
            down=down,
            groups=assignment.header.groups,
            kept=self._vault.at(task.since),
            keep_as=self._vault.draft,
            serve_as=self._serving.draft if task.kind is Kind.FINISH else None,
            parcel_as=self._outbox.draft(task.key),
        )

    def has_answer(self, key: str, task: Task) -> bool:
        """Whether this task was done before a restart: then it is answered, not done again."""
        done = self.marks()[:1] == (Mark(task.round, task.attempt),)
        if task.kind is not Kind.TRAIN or not done:
            return False
        return task.drop or self._outbox.entry(key) is not None

    def keep(self, assignment: Assignment, done: Done) -> None:
        """Make a finished task last, before anything of it is sent: its generation and its upload together."""
        task, key = assignment.task, assignment.key
        (self._folder / "scores.json").write_text(json.dumps({key: done.scores}))
        self._note("history.jsonl", {"task": key, "scores": _short(done.scores), "metrics": done.metrics})
        if task.kind is Kind.FINISH:
            self._serving.commit()
        elif task.kind is Kind.TRAIN:
            if done.up is not None:
                self._post(key, task, done)
            mark = Mark(task.round, task.attempt)
            upload = None if done.up is None else key
            self._vault.commit(mark, self._vault.draft, upload, since=task.since)
            self._outbox.sweep({key} if upload else ())

    def scores(self, key: str) -> Scores:
        """What was measured in this task: on disk, so that a kill before the report does not lose it."""
        try:
            measured: dict[str, Scores] = json.loads((self._folder / "scores.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return measured.get(key, {})

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

    def audit(self, offer: Offer, receipt: Receipt) -> None:
        """List what left the building: names, bytes, hash, round."""
        header = offer.header
        names = [entry.name for entry in self._spec.manifest(header.kind, header.phase, "up")]
        sent = {"bytes": offer.blob.size, "sha256": receipt.digest, "names": names}
        self._note("audit.jsonl", {"task": offer.key, "run": self._spec.id, **sent})

    def _post(self, key: str, task: Task, done: Done) -> None:
        draft = self._outbox.draft(key)
        if isinstance(done.up, bytes):
            draft.write_bytes(done.up)
        header = Header(
            run=self._spec.id,
            round=task.round,
            attempt=task.attempt,
            kind=task.kind,
            phase=task.phase,
            direction="up",
            sender=self._site,
            manifest=manifest_hash(self._spec.manifest(task.kind, task.phase, "up")),
            groups=done.groups,
        )
        self._outbox.store(key, header, draft)

    def _note(self, file: str, line: dict[str, object]) -> None:
        with (self._folder / file).open("a", encoding="utf-8") as book:
            book.write(json.dumps(line, sort_keys=True) + "\n")


def _short(scores: Scores) -> dict[str, dict[str, float]]:
    """The site's own curve needs no histogram of itself."""
    return {
        name: {"accuracy": values[2], "loss": values[4], "samples": values[1]}
        for name, values in scores.items()
    }
