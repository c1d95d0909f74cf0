"""What can happen to one site's task, and what follows from it: plain values, said to and by `task_state`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Header

Stage: TypeAlias = Literal["called", "working", "uploading"]
"""The same for people, who are told what a site does and not what its coordinator does."""
LostAt: TypeAlias = Literal[Stage, "drawn"]
"""How far a site was with its task when it was lost; `drawn`: to drop out."""
Timed: TypeAlias = Literal["download", "work", "upload", "verify"]
"""What a site goes through with a task, and how long each takes."""


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


@dataclass(frozen=True, slots=True)
class Unprepared:
    """The download was not made: the site hung up, or something broke."""

    now: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a download says that was handed out before a restart."""

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
    """The site gets on with nothing, and it is not its fault."""

    now: float


@dataclass(frozen=True, slots=True)
class Grown:
    """So many bytes of the upload are here."""

    reached: int
    now: float


# -- events: the upload


@dataclass(frozen=True, slots=True)
class Reserved:
    """Room on the disk is promised to an upload before its file is begun."""

    size: int


@dataclass(frozen=True, slots=True)
class Offered:
    """An upload has its room: its bytes may come into `path` from `offset` on. Of its size, `lacking` bytes are not
    taken from the disk yet.
    """

    offer: Offer
    path: Path
    offset: int
    size: int
    lacking: int
    now: float


@dataclass(frozen=True, slots=True)
class Discarded:
    """The site offers other bytes: those of the upload under way are of no use."""


@dataclass(frozen=True, slots=True)
class Stored:
    """All bytes of the upload are here."""

    now: float


# -- events: the verdict


@dataclass(frozen=True, slots=True)
class Verified:
    """The upload is what was offered; it lies in the spool under this name."""

    update: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The upload is not what was offered, or cannot be counted."""

    code: str


@dataclass(frozen=True, slots=True)
class Unverified:
    """The verification broke off, for want of room mostly: nothing is known of the upload."""

    now: float


@dataclass(frozen=True, slots=True)
class ReceiptAsked:
    """The site offers again what has been verified."""


@dataclass(frozen=True, slots=True)
class ReceiptWritten:
    """The receipt is in the journal."""

    now: float


@dataclass(frozen=True, slots=True)
class ReceiptFailed:
    """The journal did not take the receipt: none was given."""

    now: float


# -- events: the end


@dataclass(frozen=True, slots=True)
class Reported:
    """The site has measured; a task that asks for no update is done with that."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The site will not answer: it declined, left, was refused, or is given up."""

    reason: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Nobody waits for the answer any more; what has come stays for the next life of the coordinator."""


# -- effects


@dataclass(frozen=True, slots=True)
class Receive:
    """Let bytes come into this file from `offset` on."""

    path: Path
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Take this file away: nobody will use it."""

    path: Path


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """Sign a receipt and write it down."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """Tell the site that its task was over before."""


@dataclass(frozen=True, slots=True)
class Took:
    """The site was through with this after so many seconds."""

    done: Timed
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell who waits that the site has answered: with this update, or with none when the task asks for none."""

    update: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Tell who waits that the site will not answer."""

    reason: str
    stage: LostAt


DownloadEvent: TypeAlias = Asked | Prepared | Unprepared | Recalled | Fetched
LifeEvent: TypeAlias = Progressed | Excused | Grown
UploadEvent: TypeAlias = Reserved | Offered | Discarded | Stored
VerdictEvent: TypeAlias = Verified | Rejected | Unverified | ReceiptAsked | ReceiptWritten | ReceiptFailed
EndEvent: TypeAlias = Reported | Lost | Withdrawn
Event: TypeAlias = DownloadEvent | LifeEvent | UploadEvent | VerdictEvent | EndEvent
Effect: TypeAlias = Receive | Remove | WriteReceipt | TooLate | Took | Answer | GivenUp
