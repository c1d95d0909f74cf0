"""A site with real keys, a coordinator that seals for it, and a line between them that may change what passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.run_folder.audit import entries
from pfl_client.trainer_process.api import DataFolder, Done, Job, Progress
from pfl_common import sealing
from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.sealing import FRAME
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    Scores,
    Seal,
    header_down,
    header_of_init,
)
from pfl_common.spec.run import Description, Header, Kind, Model, RunSpec, Task
from tests.common.sealing.members import PATTERN, Members

SITE, OTHER = "hospital-a", "hospital-b"
MANIFEST = (Entry("encoder.weight", "float32", (1 << 20,)),)
SCORES: Scores = {"pre/test/combined": [3.0, 4.0, 0.75, 0.5625, 0.5]}
INIT = b"first model"
PLAIN = PATTERN * ((2 * FRAME + 160) // len(PATTERN))
"""Two frames and a short one."""

Sent: TypeAlias = tuple[Assignment, bytes]


def pin(**changes: object) -> RunSpec:
    """A run whose parcels have one tensor."""
    manifests = {f"{kind}/train/down": MANIFEST for kind in Kind} | {
        "init": MANIFEST,
        "train/train/up": MANIFEST,
    }
    model = Model("mlp", (1, 4, 4), ("a", "b"))
    return replace(
        RunSpec("run-1", "fedavg", {}, model, rounds=5, seed=7, roster=(SITE,), manifests=manifests),
        **changes,
    )


@dataclass
class Post:
    """The coordinator's side: seals for the sites of its federation."""

    members: Members
    spec: RunSpec = field(default_factory=pin)

    def __post_init__(self) -> None:
        self.keys = self.members.authority.coordinator_keys()
        self.folder = self.members.folder / "post"
        self.folder.mkdir()
        self.keyrings = {name: self.members.keyring(name) for name in (SITE, OTHER)}

    def send(
        self,
        plain: bytes = PLAIN,
        task: Task | None = None,
        *,
        site: str = SITE,
        keys: EnvelopeKeys | None = None,
        **changes: object,
    ) -> Sent:
        """A task with its download for one site, and the sealed bytes."""
        task = task or Task(Kind.TRAIN, 1, 3)
        header = replace(header_down(self.spec, task, state="state"), **changes)
        blob, seal, raw = self.seal(plain, header, site=site, keys=keys)
        return Assignment(task, header, blob, seal), raw

    def join(self, plain: bytes = INIT, *, spec: RunSpec | None = None) -> tuple[Joined, bytes]:
        """The answer to Join with the first model, and its sealed bytes."""
        spec = spec or self.spec
        blob, seal, raw = self.seal(plain, header_of_init(spec))
        card = self.members.authority.coordinator_card(now=self.members.now)
        return Joined(spec.to_json(), blob, seal, card), raw

    def seal(
        self, plain: bytes, header: Header, *, site: str = SITE, keys: EnvelopeKeys | None = None
    ) -> tuple[Blob, Seal, bytes]:
        """A sealed parcel, addressed to one site."""
        file = self.folder / "sealed"
        sealed = sealing.seal_bytes(plain, file, header.to_json().encode())
        card = self.members.authority.card_of(site, now=self.members.now)
        wrapped = sealing.wrap(sealed.content_key, card, header_hash=sealed.binding.hash)
        sign = sealing.sign_up if header.direction == "up" else sealing.sign_down
        signature = sign(keys or self.keys, sealed, wrap=wrapped)
        return Blob(sealed.digest, sealed.size), Seal(wrapped, signature), file.read_bytes()

    def receipt(self, offer: Offer, **changes: str) -> Receipt:
        """The coordinator's word for an upload."""
        said = replace(Receipt(self.spec.id, offer.key, SITE, offer.blob.digest), **changes)
        return replace(said, signature=sealing.sign_receipt(self.keys, said))


class Line:
    """A Link that hands over what a test laid on it, and writes down what the site says."""

    def __init__(self, joined: tuple[Joined, bytes], work: list[Sent], post: Post) -> None:
        self._joined, self._work = joined, [*work]
        self._raw = {joined[0].init.digest: joined[1]}
        self.answers: list[Callable[[Offer], Receipt]] = []
        self._post = post
        self.fetched: list[str] = []
        self.submitted: list[tuple[Offer, bytes]] = []
        self.declined: list[tuple[str, str]] = []
        self.words: list[str] = []

    async def join(self, description: Description) -> Joined | None:
        return self._joined[0]

    async def next_task(
        self, marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        if not self._work:
            return Over("finished")
        assignment, raw = self._work.pop(0)
        self._raw[assignment.blob.digest] = raw
        return assignment

    def take_beside(self, blob: Blob, by: str = "") -> bytes:
        return b""

    async def fetch(self, blob: Blob, into: Path, *, kind: str = "init", **about: object) -> None:
        self.fetched.append(blob.digest)
        into.write_bytes(self._raw[blob.digest])

    async def hand_in(self, *_: object, **__: object) -> None:
        """Only single calls here."""

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        self.submitted.append((offer, parcel.read_bytes()))
        return self.answers.pop(0)(offer) if self.answers else self._post.receipt(offer)

    async def report(self, key: str, scores: Scores) -> None:
        return

    async def decline(self, key: str, reason: str, words: str) -> None:
        self.declined.append((key, reason))
        self.words.append(words)

    async def heartbeat(self, key: str, progress: int) -> bool:
        return True

    async def leave(self) -> None:
        return


@dataclass
class Trainer:
    """A Bench that remembers what it was given."""

    update: bytes = PLAIN
    seen: list[bytes] = field(default_factory=list)
    first: list[bytes] = field(default_factory=list)

    async def describe(self, folder: DataFolder) -> Description:
        return Description((1, 4, 4), ("a", "b"), 8)

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        self.first.append(init.read_bytes())

    async def work(self, job: Job, progress: Progress) -> Done:
        self.seen.append(job.down.read_bytes() if isinstance(job.down, Path) else bytes(job.down))
        job.keep_as.write_text(f"state after {job.task.round}")
        if job.serve_as is not None:
            job.serve_as.write_text("model")
        return Done(dict(SCORES), {"loss": 1.0}, self.update if job.task.kind is Kind.TRAIN else None)

    async def close(self) -> None:
        return


@dataclass
class Place:
    """One site's machine."""

    post: Post
    state: Path

    async def live(
        self, *work: Sent, joined: tuple[Joined, bytes] | None = None, answers: tuple[object, ...] = ()
    ) -> tuple[Line, Trainer]:
        """A life of the daemon, from joining to the end of all work."""
        line, trainer = Line(joined or self.post.join(), list(work), self.post), Trainer()
        line.answers.extend(answers)
        await asyncio.wait_for(self.daemon(line, trainer).run(), 20)
        return line, trainer

    def daemon(self, line: Line, trainer: Trainer) -> Daemon:
        """The site's program."""
        envelopes = SealedEnvelopes(self.post.keyrings[SITE])
        folder = DataFolder(self.state.parent / "data", SITE)
        return Daemon(folder, link=line, bench=trainer, envelopes=envelopes, state=self.state)

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.state / "runs" / self.post.spec.id

    def downloads(self) -> list[str]:
        """What lies where parcels are fetched to."""
        return sorted(path.name for path in (self.run / "downloads").iterdir())

    def audit(self) -> list[dict[str, object]]:
        """The receipts in the site's list of what has left it."""
        return [entry for entry in entries(self.state, self.run.name) if entry["kind"] == "receipt"]
