"""Envelopes between machines: downloads are sealed for their recipients, uploads stay sealed on disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

from pfl_common import sealing
from pfl_common.errors import Refused
from pfl_common.identity import Authority
from pfl_common.identity.cards import Card, EnvelopeKeys, open_card
from pfl_common.identity.names import is_site_name
from pfl_common.sealing.calls import CallBook
from pfl_common.spec.digests import digest_of_file
from pfl_common.spec.messages import COORDINATOR, Blob, Offer, Receipt, Seal
from pfl_common.spec.run import ClientId, Header
from pfl_common.tensors.layout import Source
from pfl_server.envelopes import Letter, Posted


class SealedEnvelopes:
    """Envelopes made with the coordinator's keys and the sites' cards."""

    def __init__(
        self,
        keys: EnvelopeKeys,
        card: bytes,
        *,
        own: Card,
        find_card: Callable[[ClientId], Card],
        find_signers: Callable[[ClientId], Sequence[Card]],
    ) -> None:
        """`find_signers` gives every card a site ever had: who is gone by now signed what is kept."""
        self.card = card
        self._keys, self._own, self._find_card = keys, own, find_card
        self._find_signers = find_signers

    def size(self, plain: int) -> int:
        """With a tag for each frame."""
        return sealing.sealed_size(plain)

    def post(
        self, header: Header, write: Callable[[BinaryIO], object], folder: Path, *, over: Path | None = None
    ) -> Posted:
        """Seal under a fresh key while it is written: the open bytes never lie on the disk."""
        said = header.to_json().encode()
        # Its name is its digest, which is known only at the end.
        draft = folder / f"draft-{secrets.token_hex(8)}"
        try:
            if over is not None:
                os.replace(over, draft)
            with sealing.seal_stream(draft, said, over=True) as stream:
                write(cast(BinaryIO, stream.writer))
            sealed = stream.sealed
            os.replace(draft, folder / sealed.digest)
        finally:
            draft.unlink(missing_ok=True)
        own = sealing.wrap(sealed.content_key, self._own, header_hash=sealed.binding.hash)
        signature = sealing.sign_down(self._keys, sealed, wrap=own)
        blob = Blob(sealed.digest, sealed.size)
        return Posted(header, blob, signature=signature, own=own, key=sealed.content_key)

    def reopen(self, posted: Posted, file: Path) -> Posted | None:
        """The same sealed bytes again, so that a site that has half of them can go on."""
        said = posted.header.to_json().encode()
        envelope = sealing.Envelope(said, posted.blob.digest, posted.blob.size, posted.own, posted.signature)
        try:
            # Its own signature first: what somebody else laid on this shelf must not be signed for the sites.
            vouched = sealing.verify_down(self._own, envelope)
            key = sealing.unwrap(posted.own, self._keys, name=COORDINATOR, header_hash=vouched.binding.hash)
        except sealing.Tampered:
            return None
        # A power loss can tear what was never synced.
        whole = digest_of_file(file, posted.header.digests) == posted.blob.digest
        return replace(posted, key=key) if whole else None

    def address(self, posted: Posted, site: ClientId) -> Seal:
        """The content key for one site alone, and a signature over just this wrap of it."""
        if not isinstance(posted.key, sealing.ContentKey):
            raise TypeError("a parcel without its key can be addressed to nobody")
        binding = sealing.bind(posted.header.to_json().encode())
        wrapped = sealing.wrap(posted.key, self._find_card(site), header_hash=binding.hash)
        parcel = sealing.Vouched(binding, posted.blob.digest, posted.blob.size)
        return Seal(wrapped, sealing.sign_down(self._keys, parcel, wrap=wrapped))

    def accept(self, site: ClientId, offer: Offer, opened: Letter | None = None) -> Letter:
        """Signed by the site that offers, and wrapped for this coordinator."""
        said = offer.header.to_json().encode()
        envelope = sealing.Envelope(
            said, offer.blob.digest, offer.blob.size, offer.seal.wrap, offer.seal.signature
        )
        try:
            # Each time, by the card of this moment; the wrap under it stays the one that was opened.
            vouched = sealing.verify_up(self._find_card(site), envelope)
            return opened or self._letter(offer, vouched)
        except sealing.Tampered as tampered:
            raise Refused("seal", f"an offer of {site}: {tampered.words}") from None

    def keep(self, offer: Offer) -> SealedLetter:
        """Signed by a key that was its site's once: a wrap alone is made by whoever knows this coordinator's card."""
        try:
            return self._letter(offer, self._verify_kept(offer))
        except sealing.Tampered as tampered:
            raise Refused("seal", tampered.words) from None

    def _verify_kept(self, offer: Offer) -> sealing.Vouched:
        said = offer.header.to_json().encode()
        envelope = sealing.Envelope(
            said, offer.blob.digest, offer.blob.size, offer.seal.wrap, offer.seal.signature
        )
        site = offer.header.sender
        for card in self._find_signers(site) if is_site_name(site) else ():
            with suppress(sealing.Tampered):
                return sealing.verify_up(card, envelope)
        raise sealing.Tampered(
            "signature", f"a kept update of {site[:63]!r} that no key of this site signed; expected: its own"
        )

    def _letter(self, offer: Offer, vouched: sealing.Vouched) -> SealedLetter:
        header_hash = vouched.binding.hash
        key = sealing.unwrap(offer.seal.wrap, self._keys, name=COORDINATOR, header_hash=header_hash)
        return SealedLetter(key, vouched)

    def sign(self, receipt: Receipt) -> Receipt:
        """Ed25519 signs the same words in the same way."""
        return replace(receipt, signature=sealing.sign_receipt(self._keys, receipt))


def seal_with(authority: Authority, *, now: datetime, hybrid: bool = False) -> SealedEnvelopes:
    """Envelopes of a federation's coordinator."""
    card = authority.coordinator_card(now=now, hybrid=hybrid)
    return SealedEnvelopes(
        authority.coordinator_keys(),
        card,
        own=open_card(card, authority.ca_pem),
        find_card=lambda site: authority.card_of(site, now=datetime.now(UTC)),
        find_signers=authority.cards.signers,
    )


def call_book(authority: Authority, *, now: datetime, hybrid: bool = False) -> CallBook:
    """The record by which a federation's coordinator knows its callers."""
    return CallBook(
        authority.coordinator_keys(),
        authority.coordinator_card(now=now, hybrid=hybrid),
        find_card=lambda site: authority.card_of(site, now=datetime.now(UTC)),
    )


class SealedLetter:
    """An upload whose site signature has been verified."""

    __slots__ = ("_key", "_vouched")

    def __init__(self, key: sealing.ContentKey, vouched: sealing.Vouched) -> None:
        self._key, self._vouched = key, vouched

    def __repr__(self) -> str:
        return "SealedLetter(...)"  # a representation can end in a log

    def genuine(self, file: Path, start: int = 0) -> int:
        """Up to the first frame that is not the site's."""
        return sealing.check_frames(file, key=self._key, vouched=self._vouched, start=start)

    def arriving(self) -> sealing.ArrivingFrames:
        """Each frame as it comes, their order and number by the signature at the end."""
        return sealing.ArrivingFrames(key=self._key, vouched=self._vouched)

    def check(self, file: Path) -> None:
        """Every frame, and their order and number by the signature."""
        try:
            sealing.check_whole(file, key=self._key, vouched=self._vouched)
        except sealing.Tampered as tampered:
            raise Refused("seal", tampered.words) from None

    @contextmanager
    def reading(self, file: Path) -> Iterator[Source]:
        """Each frame as it is read, their order and number by the signature at the end."""
        try:
            with sealing.open_unverified(file, key=self._key, vouched=self._vouched) as source:
                yield source
        except sealing.Tampered as tampered:
            raise Refused("seal", tampered.words) from None

    def source(self, file: Path) -> AbstractContextManager[Source]:
        """Opened frame by frame where it is read; nothing open is written anywhere."""
        return sealing.open_source(file, key=self._key, vouched=self._vouched)
