"""The coordinator's interface for sealing downloads and opening uploads.

Two things are Envelopes: `sealed.SealedEnvelopes` between machines, and the plain ones of `pfl simulate`. Nothing
else knows whether bytes lie open or sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from pfl_common.spec.messages import Blob, Offer, Receipt, Seal
from pfl_common.spec.run import ClientId, Header
from pfl_common.tensors.layout import Source


@dataclass(frozen=True)
class Posted:
    """A sealed parcel, ready to be fetched; with `own` the coordinator itself can open it after a restart."""

    header: Header
    blob: Blob
    signature: bytes = b""
    own: bytes = b""
    key: object = None


class Arriving(Protocol):
    """An upload that is opened frame by frame as it comes."""

    def open(self, at: int, frame: bytes, room: Callable[[int], memoryview]) -> memoryview | None:
        """The content of a frame that begins there, in room of just its size; None if it is not the next one."""

    @property
    def whole(self) -> bool:
        """Whether all of it came, frame after frame, as it was offered."""


class Letter(Protocol):
    """One upload, known to be what its sender offered; its bytes may still be arriving."""

    def genuine(self, file: Path, start: int = 0) -> int:
        """The bytes of a growing file that are verified to be the sender's; those up to `start` were before."""

    def arriving(self) -> Arriving | None:
        """Begin to open it while it comes; None: it is looked at when it is all there."""

    def check(self, file: Path) -> None:
        """Refuse a file that is not, to the last byte, what its sender offered."""

    def reading(self, file: Path) -> AbstractContextManager[Source]:
        """The content of a file to be read once, in order; refused at the end if it is not what was offered."""

    def source(self, file: Path) -> AbstractContextManager[Source]:
        """The content of a file that was checked."""


class Envelopes(Protocol):
    """Seals downloads, opens uploads and signs receipts."""

    @property
    def card(self) -> bytes:
        """By what a site knows the coordinator's signatures."""

    def size(self, plain: int) -> int:
        """Size on the wire of a parcel of `plain` bytes."""

    def post(
        self, header: Header, write: Callable[[BinaryIO], object], folder: Path, *, over: Path | None = None
    ) -> Posted:
        """Close a parcel into a file of this folder, named by its digest; `over` is one that may be written over."""

    def reopen(self, posted: Posted, file: Path) -> Posted | None:
        """A parcel that was closed before a restart, ready to be addressed again; None: make it anew."""

    def address(self, posted: Posted, site: ClientId) -> Seal:
        """The wrap with which one site can open a parcel."""

    def accept(self, site: ClientId, offer: Offer, opened: Letter | None = None) -> Letter:
        """An offer whose words are its sender's own; anything else is refused. `opened` is the letter of the very same
        offer, if it was accepted before.
        """

    def keep(self, offer: Offer) -> Letter:
        """An offer that was accepted before: its site may be gone by now, and its card run out."""

    def sign(self, receipt: Receipt) -> Receipt:
        """The receipt with the coordinator's word for it; the same receipt always gets the same one."""
