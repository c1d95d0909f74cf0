"""Envelopes between machines: downloads open for this site alone, uploads for the coordinator alone."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pfl_client.envelopes import Closed
from pfl_client.trainer_process.api import Parcel
from pfl_common import sealing
from pfl_common.errors import Refused
from pfl_common.identity import Keyring
from pfl_common.identity.cards import COORDINATOR, Card, read_card
from pfl_common.spec.messages import Blob, Offer, Receipt, Seal
from pfl_common.spec.run import Header


class SealedEnvelopes:
    """Envelopes made with the site's keys and, once it is known, the coordinator's card.

    `secret` never leaves the site and outlives its keys; without one nothing is said of the data's fingerprint.
    """

    def __init__(
        self,
        keyring: Keyring,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        secret: bytes = b"",
    ) -> None:
        self._keyring, self._clock, self._secret = keyring, clock, secret
        self._coordinator: Card | None = None

    def meet(self, card: bytes) -> None:
        """The federation's authority must have signed it, for the coordinator, and its time must not be over."""
        self._coordinator = read_card(card, self._keyring.ca_pem, name=COORDINATOR, now=self._clock())

    def plain(self, size: int) -> int:
        """Without the tags."""
        return sealing.plain_size(size)

    def receive(self, header: Header, blob: Blob, seal: Seal) -> SealedLetter:
        """Signed by the coordinator, under the header this site expects, with a key wrapped for this site."""
        envelope = sealing.Envelope(header, blob.digest, blob.size, seal.wrap, seal.signature)
        vouched = sealing.verify_down(self._known(), envelope)
        keys = self._keyring.envelope_keys()
        key = sealing.unwrap(seal.wrap, keys, name=self._keyring.name, header_hash=vouched.binding.hash)
        return SealedLetter(key, vouched)

    def close(self, parcel: Parcel, header: Header, into: Path) -> Closed:
        """Seal under a fresh key; the coordinator can open it, and this site, until it forgets it."""
        if not isinstance(parcel, Path):
            sealed = sealing.seal_bytes(parcel, into, header, over=True)
        else:
            sealed = sealing.seal_file(parcel, into, header, over=True)
        bound, keys = sealed.binding.hash, self._keyring.envelope_keys()
        wrap = sealing.wrap(sealed.content_key, self._known(), header_hash=bound)
        signature = sealing.sign_up(keys, sealed, wrap=wrap)
        own = sealing.lock(sealed.content_key, keys, header_hash=bound)
        return Closed(Blob(sealed.digest, sealed.size), Seal(wrap, signature), own)

    def whole(self, offer: Offer, own: bytes, file: Path) -> bool:
        """Opened with the site's own keys, to the last byte."""
        binding = sealing.bind(offer.header)
        vouched = sealing.Vouched(binding, offer.blob.digest, offer.blob.size)
        try:
            keys = self._keyring.envelope_keys()
            if len(own) == sealing.LOCK_BYTES:
                key = sealing.unlock(own, keys, header_hash=binding.hash)
            else:  # of an earlier release, which made a wrap for itself
                key = sealing.unwrap(own, keys, name=self._keyring.name, header_hash=binding.hash)
            sealing.check_whole(file, key=key, vouched=vouched)
        except (sealing.Tampered, FileNotFoundError):
            return False
        return True

    def confirm(self, receipt: Receipt) -> None:
        """Ed25519 over run, task, site and digest."""
        sealing.verify_receipt(self._known(), receipt, receipt.signature)

    def veil(self, fingerprint: str) -> str:
        """HMAC: without the key nobody can tell whether some known folder is this one."""
        if not (fingerprint and self._secret):
            return ""
        return hmac.new(self._secret, fingerprint.encode(), hashlib.sha256).hexdigest()

    def _known(self) -> Card:
        if self._coordinator is None:
            raise Refused("card", "the coordinator has shown no card; expected: one with its answer to Join")
        return self._coordinator


class SealedLetter:
    """A download whose coordinator signature has been verified."""

    def __init__(self, key: sealing.ContentKey, vouched: sealing.Vouched) -> None:
        self._key, self._vouched = key, vouched

    def read(self, file: Path) -> Parcel:
        """All of it has verified when this returns; its digest was compared when it had come."""
        return sealing.open_to_bytes(file, key=self._key, vouched=self._vouched, hashed=True)

    def open(self, content: bytes) -> Parcel:
        """All of it has verified when this returns."""
        return sealing.open_held(content, key=self._key, vouched=self._vouched)

    def open_early(self, into: Path | memoryview) -> sealing.EarlyOpener:
        """Each frame as it comes."""
        return sealing.EarlyOpener(into, key=self._key, vouched=self._vouched)

    def unpack_over(self, file: Path, into: Path) -> None:
        """Written over what was there; gone if anything does not verify."""
        sealing.open_over_file(file, into, key=self._key, vouched=self._vouched)

    def unpack(self, file: Path, into: Path) -> None:
        """The file has its name only once all of it has verified."""
        sealing.open_to_file(file, into, key=self._key, vouched=self._vouched)
