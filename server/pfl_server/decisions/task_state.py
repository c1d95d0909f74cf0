"""One site's task as a state machine without clock, socket or tensor: events in, effects out.

A site is `called`; it comes and is `handed` the task; it trains, then its upload is `offered` and comes in; the whole
upload is `verifying`; its receipt is `promised`, and from there on the task cannot be given up. The task is `settled`
once: answered or lost. Work that was under way at that moment ends later and is told that it is too late.

TABLE says which event may come in which state. An event outside the table is a bug in this program, not in a site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Header
from pfl_server.decisions.lease import Lease, Pace
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
"""The state after each event (row) in each state (column); `-`: the event cannot come in this state."""


def _read(table: str) -> dict[str, dict[Step, Step]]:
    """For each event, the states it may come in, each with the state that follows."""
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
    """An event came in a state that cannot take it: a bug in this program."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is being received."""

    path: Path
    size: int


@dataclass
class TaskState:
    """The state of one site's task; only `handle` changes it."""

    uploads: bool
    """Only training ends in an upload; the other kinds end with their report."""
    lease: Lease
    step: Step = "called"
    asked: bool = False
    """The site came for its task in this life of the coordinator; after a restart it may offer without."""
    making: int = 0
    """Calls of the site that wait while its download is made."""
    header: Header | None = None
    """The header of its download; the update refers to the same shared state."""
    digest: str = ""
    """The name of its download, until the site has it."""
    made: bool = False
    """Its download was made once: to make the same again takes no time worth waiting for."""
    turned: float | None = None
    """When the phase under way began; None if that was not seen."""
    offer: Offer | None = None
    """Its last offer."""
    upload: Upload | None = None
    """The upload under way, until it lies in the spool or is discarded."""
    reserved: int = 0
    """Bytes that its upload still had to take from the free disk when it was offered."""
    spooled: str = ""
    """The name of its verified update in the spool."""

    @property
    def stage(self) -> Stage:
        """How far the site is, in words for people."""
        return "called" if self.step == "called" else "working" if self.step == "handed" else "uploading"

    @property
    def can_be_lost(self) -> bool:
        """Whether the task can be given up: not from the moment its receipt is being written."""
        return self.step not in ("promised", "settled")

    def is_verified(self, offer: Offer) -> bool:
        """Whether the update of this offer is verified already."""
        return bool(self.spooled) and self.offer == offer

    def is_silent(self, now: float, *, lease_seconds: float) -> bool:
        """Whether the lease has ended; the coordinator's own work is not charged to the site."""
        return not self.is_waited_on and now - self.lease.renewed > lease_seconds

    @property
    def is_waited_on(self) -> bool:
        """Whether the coordinator is at work for it: making a download, verifying, writing a receipt."""
        return (bool(self.making) and not self.made) or self.step in ("verifying", "promised")

    @property
    def pace(self) -> Pace | None:
        """How fast the site was with this task, if it was seen from its download to its whole upload."""
        return self.lease.pace

    def lacking(self, reached: int) -> int:
        """Bytes of disk promised to the upload and not taken yet, once its file has reached so many bytes. An older
        file that it overwrites has taken its bytes already.
        """
        return min(self.reserved, max(0, self.upload.size - reached)) if self.upload else self.reserved

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; an event that cannot come now changes nothing and raises WrongStep."""
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
        """The condition beyond the table that an event does not meet, in words; empty if it meets all."""
        match event:
            case Prepared() | Unprepared() if not self.making:
                return "no download of it is being made"
            case _ if self.step == "settled":
                return ""
            case Grown() | Discarded() | Stored() if self.upload is None:
                return "no upload of it is under way"
            case ReceiptAsked() if not self.spooled:
                return "nothing of it was verified"
            case Reported() if self.uploads:
                return "it asks for an update"
            case Offered() if not self.uploads:
                return "it asks for no update"
            case Offered(path=path) if self.upload is not None and self.upload.path != path:
                return "the upload under way was not discarded"
            case _:
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
                self.lease.ask(now, again=self.asked)
                self.asked, self.making = True, self.making + 1
            case Prepared(header, digest, now, size):
                self._end_making(now)
                self.lease.size, self.made = size, True
                self.header, self.digest, self.turned = header, digest, now
            case Unprepared(now):
                self._end_making(now)
            case Recalled(header):
                self.header = header
            case Fetched(digest, now) if digest == self.digest:
                # Only the first time: what it fetches again while it works is no part of its work.
                self.digest, self.lease.fetched = "", now
                return self._turn("download", now)
            case Fetched():
                pass
        return []

    def _end_making(self, now: float) -> None:
        """The time in which a download was made is charged to no site; one that is made once more takes none."""
        self.making -= 1
        if not self.made:
            self.lease.begin(now)

    def _live(self, event: LifeEvent) -> list[Effect]:
        match event:
            case Progressed(progress, now):
                self.lease.progress_to(progress, now)
            case Grown(reached, now):
                self.lease.grow_to(reached, now)
            case Excused(now):
                self.lease.renewed = now
        return []

    def _receive(self, event: UploadEvent) -> list[Effect]:
        match event:
            case Reserved(size):
                self.reserved = size
                return []
            case Offered(offer, path, offset, size, lacking, now):
                first, self.offer, self.spooled = self.offer is None, offer, ""
                self.upload, self.reserved = Upload(path, size), lacking
                self.lease.offer(size, now)
                return [Receive(path, offset, size), *(self._turn("work", now) if first else [])]
            case Discarded():
                self.reserved = 0
                return self._drop()
            case Stored(now):
                self.reserved = 0
                self.lease.store(now)
                return self._turn("upload", now)

    def _judge(self, event: VerdictEvent) -> list[Effect]:
        match event:
            case Verified(update):
                self.spooled, self.upload = update, None
                return [WriteReceipt()]
            case Rejected(code):
                return [*self._drop(), GivenUp(f"refused:{code}", self.stage)]
            case Unverified(now):
                self.lease.renewed = now
            case ReceiptAsked():
                # A receipt that is being written is not written twice.
                return [] if self.step == "promised" else [WriteReceipt()]
            case ReceiptWritten(now):
                return [*self._turn("verify", now), Answer(self.spooled)]
            case ReceiptFailed(now):
                # The site waits for the disk now: this time is not counted as verifying.
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
        """An event that comes after the task was settled."""
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
        """Discard the upload under way, if there is one."""
        dropped, self.upload = self.upload, None
        if dropped is not None:
            self.lease.begin_upload_anew()
        return [] if dropped is None else [Remove(dropped.path)]

    def _turn(self, done: Timed, now: float) -> list[Effect]:
        """Begin the next phase; gives the time of the last one, if its beginning was seen and the task is training."""
        began, self.turned = self.turned, now
        return [] if began is None or not self.uploads else [Took(done, now - began)]
