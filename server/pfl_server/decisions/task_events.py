"""The events of one site's task and the effects that follow from them: plain values, for `task_state`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Header

Stage: TypeAlias = Literal["called", "working", "uploading"]
"""How far a site is with its task, as people are told: verifying and receipts are the coordinator's own work."""
LostAt: TypeAlias = Literal[Stage, "drawn"]
"""How far a site was when it was lost; `drawn`: it was drawn to drop out."""
Timed: TypeAlias = Literal["download", "work", "upload", "verify"]
"""Phases of a task that are timed."""


# -- events: the download


@dataclass(frozen=True, slots=True)
class Asked:
    """The site asks for work and is handed the task, for the first time or again: its download is being made."""

    now: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """The download is made; the site is told of it."""

    header: Header
    digest: str
    now: float
    size: int = 0
    """Its bytes, which a site counts as progress while it fetches them."""


@dataclass(frozen=True, slots=True)
class Unprepared:
    """The download was not made: the site hung up, or something broke."""

    now: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """The header of a download that was handed out before a restart."""

    header: Header


@dataclass(frozen=True, slots=True)
class Fetched:
    """The site has been sent the last of some bytes."""

    digest: str
    now: float


# -- events: signs of life


@dataclass(frozen=True, slots=True)
class Progressed:
    """The site says how far it is with its work."""

    progress: int
    now: float


@dataclass(frozen=True, slots=True)
class Excused:
    """The site made no progress for a reason that is not its fault."""

    now: float


@dataclass(frozen=True, slots=True)
class Grown:
    """The upload has reached so many bytes."""

    reached: int
    now: float


# -- events: the upload


@dataclass(frozen=True, slots=True)
class Reserved:
    """Room on the disk is promised to an upload before its file is begun."""

    size: int


@dataclass(frozen=True, slots=True)
class Offered:
    """An upload has its room: its bytes may come into `path` from `offset` on. `lacking` of them still have to be taken
    from the free disk.
    """

    offer: Offer
    path: Path
    offset: int
    size: int
    lacking: int
    now: float


@dataclass(frozen=True, slots=True)
class Discarded:
    """The site offers other bytes, so those of the upload under way are useless."""


@dataclass(frozen=True, slots=True)
class Stored:
    """All bytes of the upload are here."""

    now: float


# -- events: the verdict


@dataclass(frozen=True, slots=True)
class Verified:
    """The upload is valid and lies in the spool under this name."""

    update: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The upload is invalid: other bytes than were offered, or numbers that cannot be counted."""

    code: str


@dataclass(frozen=True, slots=True)
class Unverified:
    """The verification broke off, mostly because the disk is full; the upload may be valid."""

    now: float


@dataclass(frozen=True, slots=True)
class ReceiptAsked:
    """The site offers again an update that is verified already."""


@dataclass(frozen=True, slots=True)
class ReceiptWritten:
    """The receipt is in the journal."""

    now: float


@dataclass(frozen=True, slots=True)
class ReceiptFailed:
    """The journal could not take the receipt, so none was given."""

    now: float


# -- events: the end


@dataclass(frozen=True, slots=True)
class Reported:
    """The site has reported its evaluation, which ends a task that asks for no update."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The site will not answer: it declined, left, was refused or is given up."""

    reason: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Training no longer waits for the answer; bytes that have come stay for the next life of the coordinator."""


# -- effects


@dataclass(frozen=True, slots=True)
class Receive:
    """Let bytes come into this file from `offset` on."""

    path: Path
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete this file: nobody will use it."""

    path: Path


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """Sign a receipt and write it down."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """Tell the site that its task had ended before."""


@dataclass(frozen=True, slots=True)
class Took:
    """A phase of the task took so many seconds."""

    done: Timed
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell training that the site has answered: with this update, or with none if the task asks for none."""

    update: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Tell training that the site will not answer."""

    reason: str
    stage: LostAt


DownloadEvent: TypeAlias = Asked | Prepared | Unprepared | Recalled | Fetched
LifeEvent: TypeAlias = Progressed | Excused | Grown
UploadEvent: TypeAlias = Reserved | Offered | Discarded | Stored
VerdictEvent: TypeAlias = Verified | Rejected | Unverified | ReceiptAsked | ReceiptWritten | ReceiptFailed
EndEvent: TypeAlias = Reported | Lost | Withdrawn
Event: TypeAlias = DownloadEvent | LifeEvent | UploadEvent | VerdictEvent | EndEvent
Effect: TypeAlias = Receive | Remove | WriteReceipt | TooLate | Took | Answer | GivenUp
