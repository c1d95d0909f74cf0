"""One site's task as a state machine without clock, socket or tensor: events in, effects out.

A site is `called`; it comes and is `handed` the task; it trains, and its upload is `offered` and comes in; once all
bytes are here they are `verifying`; then a receipt is `promised`, and from there on nobody can give the task up. It is
`settled` once: counted or lost. What was under way in that moment still comes to its end, and hears that it is late.

Which event may come in which state stands in TABLE. What no state takes is a mistake of this program, never of a site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Header
from pfl_server.decisions.task_events import (
    Answer,
    Asked,
    Discarded,
    DownloadEvent,
    Effect,
    EndEvent,
    Event,
    Excused,
    Fetched,
    GivenUp,
    Grown,
    LifeEvent,
    Lost,
    Offered,
    Prepared,
    Progressed,
    Recalled,
    ReceiptAsked,
    ReceiptFailed,
    ReceiptWritten,
    Receive,
    Rejected,
    Remove,
    Reported,
    Reserved,
    Stage,
    Stored,
    Timed,
    Took,
    TooLate,
    Unprepared,
    Unverified,
    UploadEvent,
    VerdictEvent,
    Verified,
    Withdrawn,
    WriteReceipt,
)

Step: TypeAlias = Literal["called", "handed", "offered", "verifying", "promised", "settled"]
STEPS: tuple[Step, ...] = get_args(Step)

TABLE = """
                 called     handed     offered    verifying  promised   settled
Asked            handed     handed     offered    verifying  promised   settled
Prepared         -          handed     offered    verifying  promised   settled
Unprepared       -          handed     offered    verifying  promised   settled
Recalled         called     handed     offered    -          -          settled
Fetched          called     handed     offered    verifying  promised   settled
Progressed       called     handed     offered    verifying  promised   settled
Excused          called     handed     offered    verifying  promised   settled
Grown            -          -          offered    -          -          settled
Reserved         called     handed     offered    -          -          settled
Offered          offered    offered    offered    -          -          settled
Discarded        -          -          handed     -          -          settled
Stored           -          -          verifying  -          -          settled
Verified         -          -          -          promised   -          settled
Rejected         -          -          -          settled    -          settled
Unverified       -          -          -          offered    -          settled
ReceiptAsked     -          -          promised   -          promised   settled
ReceiptWritten   -          -          -          -          settled    settled
ReceiptFailed    -          -          -          -          offered    settled
Reported         settled    settled    -          -          -          settled
Lost             settled    settled    settled    settled    promised   settled
Withdrawn        settled    settled    settled    settled    settled    settled
"""
"""The state after each event (rows) in each state (columns); `-`: it cannot come there."""


def _read(table: str) -> dict[str, dict[Step, Step]]:
    """For each event the states it may come in, each with the one that follows."""
    head, *rows = (line.split() for line in table.strip().splitlines())
    return {
        event: {
            cast(Step, before): cast(Step, after)
            for before, after in zip(head, steps, strict=True)
            if after != "-"
        }
        for event, *steps in rows
    }


FOLLOWING: Mapping[str, Mapping[Step, Step]] = _read(TABLE)


class WrongStep(RuntimeError):
    """An event came where it cannot come: a mistake of this program."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that bytes come into."""

    path: Path
    size: int


@dataclass(slots=True)
class Lease:
    """How long a site may be silent. Only progress renews it: one that hangs but still sends heartbeats is given up."""

    renewed: float
    """When the site was last seen to get on with its task."""
    progress: int = -1
    received: int = 0
    """Bytes of its upload that were seen to be here."""


@dataclass
class TaskState:
    """How far one site is with one task; changed by `handle` alone."""

    uploads: bool
    """Only training ends in an upload; the other kinds end with their report."""
    lease: Lease
    step: Step = "called"
    asked: bool = False
    """The site came for its task in this life of the coordinator; what it got before a restart it offers without."""
    making: int = 0
    """Calls of the site that wait for its download to be made."""
    header: Header | None = None
    """What was said of its download; the update refers to the same shared state."""
    digest: str = ""
    """The name of its download, until the site has it."""
    turned: float | None = None
    """When the site went from one phase to the next, if that was seen."""
    offer: Offer | None = None
    """What it offered last."""
    upload: Upload | None = None
    """The file its bytes come into, until they lie in the spool or are given up."""
    reserved: int = 0
    """Bytes that its upload lacked on the disk when it was offered."""
    spooled: str = ""
    """The name of its update in the spool, once all of it has verified."""

    @property
    def stage(self) -> Stage:
        """How far the site is, for people."""
        return "called" if self.step == "called" else "working" if self.step == "handed" else "uploading"

    @property
    def can_be_lost(self) -> bool:
        """Whether it can be given up: once its receipt is being written, nobody can."""
        return self.step not in ("promised", "settled")

    def is_verified(self, offer: Offer) -> bool:
        """Whether these very bytes lie in the spool already."""
        return bool(self.spooled) and self.offer == offer

    def is_silent(self, now: float, *, lease_seconds: float) -> bool:
        """Whether the lease has ended. What the coordinator takes for itself is charged to no site."""
        return not self.is_waited_on and now - self.lease.renewed > lease_seconds

    @property
    def is_waited_on(self) -> bool:
        """Whether it is the coordinator that has something to do: make, verify, write down."""
        return bool(self.making) or self.step in ("verifying", "promised")

    def lacking(self, reached: int) -> int:
        """Bytes of disk that are promised to the upload and not taken yet, when so many of it are here. What was there
        at its beginning is written over first.
        """
        return min(self.reserved, max(0, self.upload.size - reached)) if self.upload else self.reserved

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; one that cannot come now changes nothing and raises WrongStep."""
        after = FOLLOWING[type(event).__name__].get(self.step)
        if after is None or (missing := self._missing(event)):
            why = f": {missing}" if after is not None else ""
            raise WrongStep(f"{type(event).__name__} cannot come while a task is {self.step}{why}")
        if self.step == "settled":
            return self._end_late(event)
        effects = self._follow(event)
        self.step = after
        if after == "settled":
            self.reserved = 0
        return effects

    def _missing(self, event: Event) -> str:
        """What an event needs that is not there; the table knows only states."""
        if isinstance(event, Prepared | Unprepared) and not self.making:
            return "no download of it is being made"
        if self.step == "settled":
            return ""
        if isinstance(event, Grown | Discarded | Stored) and self.upload is None:
            return "no upload of it is under way"
        if isinstance(event, ReceiptAsked) and not self.spooled:
            return "nothing of it was verified"
        if isinstance(event, Reported) and self.uploads:
            return "it asks for an update"
        if isinstance(event, Offered) and not self.uploads:
            return "it asks for no update"
        if isinstance(event, Offered) and self.upload is not None and self.upload.path != event.path:
            return "the upload under way was not discarded"
        return ""

    def _follow(self, event: Event) -> list[Effect]:
        match event:
            case Asked() | Prepared() | Unprepared() | Recalled() | Fetched():
                return self._download(event)
            case Progressed() | Excused() | Grown():
                return self._live(event)
            case Reserved() | Offered() | Discarded() | Stored():
                return self._receive(event)
            case Verified() | Rejected() | Unverified() | ReceiptAsked() | ReceiptWritten() | ReceiptFailed():
                return self._judge(event)
            case Reported() | Lost() | Withdrawn():
                return self._end(event)

    def _download(self, event: DownloadEvent) -> list[Effect]:
        match event:
            case Asked(now):
                # A site that was killed begins again at nothing: its new progress is not measured by what it had.
                self.asked, self.lease.renewed, self.lease.progress = True, now, -1
                self.making += 1
            case Prepared(header, digest, now):
                self.making, self.lease.renewed = self.making - 1, now
                self.header, self.digest, self.turned = header, digest, now
            case Unprepared(now):
                self.making, self.lease.renewed = self.making - 1, now
            case Recalled(header):
                self.header = header
            case Fetched(digest, now) if digest == self.digest:
                # Only the first time: what it fetches again while it works is no part of its work.
                self.digest = ""
                return self._turn("download", now)
            case Fetched():
                pass
        return []

    def _live(self, event: LifeEvent) -> list[Effect]:
        lease = self.lease
        match event:
            case Progressed(progress, now) if progress > lease.progress:
                lease.progress, lease.renewed = progress, now
            case Grown(reached, now) if reached > lease.received:
                lease.received, lease.renewed = reached, now
            case Excused(now):
                lease.renewed = now
            case Progressed() | Grown():
                pass
        return []

    def _receive(self, event: UploadEvent) -> list[Effect]:
        match event:
            case Reserved(size):
                self.reserved = size
                return []
            case Offered(offer, path, offset, size, lacking, now):
                first, self.offer, self.spooled = self.offer is None, offer, ""
                self.upload, self.reserved = Upload(path, size), lacking
                return [Receive(path, offset, size), *(self._turn("work", now) if first else [])]
            case Discarded():
                self.reserved = 0
                return self._drop()
            case Stored(now):
                self.reserved = 0
                return self._turn("upload", now)

    def _judge(self, event: VerdictEvent) -> list[Effect]:
        match event:
            case Verified(update):
                self.spooled, self.upload, self.lease.received = update, None, 0
                return [WriteReceipt()]
            case Rejected(code):
                return [*self._drop(), GivenUp(f"refused:{code}", self.stage)]
            case Unverified(now):
                self.lease.renewed = now
            case ReceiptAsked():
                # Once is enough: who asks while it is being written waits for the same.
                return [] if self.step == "promised" else [WriteReceipt()]
            case ReceiptWritten(now):
                return [*self._turn("verify", now), Answer(self.spooled)]
            case ReceiptFailed(now):
                # From here on the site waits for the disk: no time of it is one of verifying.
                self.lease.renewed, self.turned = now, None
        return []

    def _end(self, event: EndEvent) -> list[Effect]:
        match event:
            case Reported():
                return [Answer("")]
            case Lost() if self.step == "promised":
                return []
            case Lost(reason):
                dropped = [] if self.step == "verifying" else self._drop()
                return [*dropped, GivenUp(reason, "drawn" if reason == "dropped" else self.stage)]
            case Withdrawn():
                self.upload = None
                return []

    def _end_late(self, event: Event) -> list[Effect]:
        """What was under way when the task was settled comes to its end."""
        match event:
            case Asked():
                self.making += 1
            case Prepared() | Unprepared():
                self.making -= 1
            case Offered(path=path):
                return [Remove(path), TooLate()]
            case Stored() | ReceiptAsked():
                return [TooLate()]
            case Verified():
                self.upload = None
                return [TooLate()]
            case Rejected() | Unverified():
                return self._drop()
            case _:
                pass
        return []

    def _drop(self) -> list[Effect]:
        """The upload under way is given up, if there is one."""
        dropped, self.upload, self.lease.received = self.upload, None, 0
        return [] if dropped is None else [Remove(dropped.path)]

    def _turn(self, done: Timed, now: float) -> list[Effect]:
        """A phase ends now: how long it took, if its beginning was seen. What a site only measures nobody waits for."""
        began, self.turned = self.turned, now
        return [] if began is None or not self.uploads else [Took(done, now - began)]
