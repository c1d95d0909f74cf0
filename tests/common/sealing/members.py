"""A federation's people with real keys: its authority, its coordinator, and sites that have enrolled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pfl_common import sealing
from pfl_common.identity import Authority, Keyring
from pfl_common.identity.cards import Card, EnvelopeKeys, open_card
from pfl_common.spec.messages import Blob, Offer, Seal
from pfl_common.spec.run import Header, Task

PATTERN = bytes.fromhex("1badb002 2badb002 3badb002 4badb002".replace(" ", ""))
"""Sixteen bytes that are four ordinary float32 numbers and that chance does not make."""


class Members:
    """One certificate authority, and the keyrings of the sites it let in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, datetime.now(UTC)
        self.authority = Authority.open_or_create(folder / "authority", now=self.now)

    def keyring(self, name: str, *, days_ago: int = 0, card: bool = True) -> Keyring:
        """The keys of a site whose card is so many days old; enrolled again, the same keys."""
        moment = self.now - timedelta(days=days_ago)
        keyring = Keyring.open(self.folder / f"keys-{name}")
        csr = keyring.csr(name)
        keyring.store(self.authority.sign_site(csr, name, now=moment), self.authority.ca_pem)
        if card:
            request = keyring.card_request(name, self.authority.federation_id)
            keyring.store_card(self.authority.sign_card(request, csr, name=name, now=moment))
        return keyring

    def card_file(self, name: str) -> Path:
        """Where the coordinator keeps a site's card."""
        return self.authority._folder / "cards" / f"{name}.card"

    @property
    def coordinator(self) -> Card:
        """The coordinator's card."""
        return open_card(self.authority.coordinator_card(now=self.now), self.authority.ca_pem)


def offer_of(
    keys: EnvelopeKeys, plain: bytes, *, header: Header, task: Task, to: Card, file: Path
) -> tuple[Offer, bytes]:
    """What an honest site with these keys offers, and its sealed bytes."""
    sealed = sealing.seal_bytes(plain, file, header.to_json().encode())
    wrapped = sealing.wrap(sealed.content_key, to, header_hash=sealed.binding.hash)
    blob = Blob(sealed.digest, sealed.size)
    return Offer(task.key, header, blob, vouch(keys, header, blob, wrap=wrapped)), file.read_bytes()


def vouch(keys: EnvelopeKeys, header: Header, blob: Blob, *, wrap: bytes) -> Seal:
    """A signature by these keys over whatever one wants."""
    binding = sealing.bind(header.to_json().encode())
    parcel = sealing.Vouched(binding, blob.digest, blob.size)
    sign = sealing.sign_up if header.direction == "up" else sealing.sign_down
    return Seal(wrap, sign(keys, parcel, wrap=wrap))


def find_bytes(folder: Path, needle: bytes) -> list[str]:
    """The files below a folder that hold these bytes somewhere."""
    return [str(path.relative_to(folder)) for path in _files(folder) if needle in path.read_bytes()]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
