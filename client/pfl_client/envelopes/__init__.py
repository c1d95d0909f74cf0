"""The daemon's interface for opening downloads and sealing uploads. Torch-free.

Two things are Envelopes: `sealed.SealedEnvelopes` between machines, and the plain ones of `pfl simulate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pfl_client.trainer_process.api import Parcel
from pfl_common.spec.messages import Blob, Offer, Receipt, Seal
from pfl_common.spec.run import Header


@dataclass(frozen=True)
class Closed:
    """A sealed update, ready to go up; with `own` this site can open it after a restart, to check that it is whole."""

    blob: Blob
    seal: Seal
    own: bytes = b""


class Early(Protocol):
    """A download that is opened piece by piece as it comes. What came out is good only if it is `complete`, and only
    once all that came has been compared with the signed digest.
    """

    def take(self, at: int, piece: bytes, /) -> None:
        """A piece that came, and where it begins; one that does not follow the last is left for later."""

    def close(self) -> bool:
        """No more comes; whether all of it was opened."""


class Letter(Protocol):
    """One download whose sender is verified; its bytes may still be arriving."""

    def read(self, file: Path) -> Parcel:
        """Its content for the trainer, in memory."""

    def open(self, content: bytes) -> Parcel:
        """Its content, of bytes that never were in a file; their digest was compared when they came."""

    def open_early(self, into: Path | memoryview) -> Early | None:
        """Begin to open it while it comes, over a file that may be there from the last time; None: not this one."""

    def unpack_over(self, file: Path, into: Path) -> None:
        """Its content over a file that may be there from the last time, whose memory is warm."""

    def unpack(self, file: Path, into: Path) -> None:
        """Its content as a file, which has its name only when all of it is genuine."""


class Envelopes(Protocol):
    """Opens downloads, seals uploads and verifies the coordinator's receipts."""

    def meet(self, card: bytes) -> None:
        """Take the coordinator's card, if this federation signed it."""

    def plain(self, size: int) -> int:
        """The size of a parcel's content, from its size on the wire."""

    def receive(self, header: Header, blob: Blob, seal: Seal) -> Letter:
        """A download that was made for this site under exactly this header; anything else is refused."""

    def close(self, parcel: Parcel, header: Header, into: Path) -> Closed:
        """Close an update into a file; one that lies there may be written over."""

    def whole(self, offer: Offer, own: bytes, file: Path) -> bool:
        """Whether a closed update still is what it was: its file is not synced, a power loss can tear it."""

    def confirm(self, receipt: Receipt) -> None:
        """Refuse a receipt that is not the coordinator's own word."""

    def veil(self, fingerprint: str) -> str:
        """The fingerprint of this site's data as others may see it: it changes with the data and tells no more."""
