"""Cards: signed statements that two public keys, one to verify with and one to seal for, belong to a site.

A site asks with both public keys, signed by the signing key and by the key of its certificate request; so
only the site that was let in with that certificate request can name the keys, nobody between. The authority
answers with a card: canonical JSON and its signature over it. A card is no secret.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import NoReturn, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pfl_common.errors import IdentityError, Refused
from pfl_common.identity import certificates
from pfl_common.identity.errors import BadRequest
from pfl_common.identity.json_record import Record, Unreadable, written
from pfl_common.identity.names import KEPT_IN_MEMORY, is_site_name

COORDINATOR = "coordinator"
LARGEST_CARD = 4096

_CARD_LABEL = b"pfl card 1\0"
_REQUEST_LABEL = b"pfl card request 1\0"
_PEM_END = b"-----END PRIVATE KEY-----\n"
_KEY_BYTES, _LATTICE_BYTES = 32, 1184
_HASH = ec.ECDSA(hashes.SHA256())

PublicKeys: TypeAlias = tuple[bytes, bytes, bytes]
"""To verify with (Ed25519), to seal for (X25519), and for the hybrid envelope (ML-KEM-768; empty without one)."""


@dataclass(frozen=True, repr=False)
class EnvelopeKeys:
    """The private keys of one party: one signs its parcels, the others open parcels sealed for it."""

    signing: Ed25519PrivateKey
    receiving: X25519PrivateKey
    lattice: MLKEM768PrivateKey | None = None
    """Beside `receiving`, for parcels sealed against a quantum computer too; None: nobody asked for that yet."""

    @classmethod
    def generate(cls, *, hybrid: bool = False) -> EnvelopeKeys:
        """Fresh keys from the operating system's randomness."""
        made = cls(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())
        return made.with_lattice() if hybrid else made

    def with_lattice(self) -> EnvelopeKeys:
        """The same keys, and one for the hybrid envelope if there is none yet."""
        return replace(self, lattice=self.lattice or MLKEM768PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes, *, where: str) -> EnvelopeKeys:
        """Read both keys; `where` names the file in the error."""
        try:
            found = [load_pem_private_key(part + _PEM_END, None) for part in pem.split(_PEM_END)[:-1]]
        except (ValueError, TypeError, UnsupportedAlgorithm):
            found = []
        match found:
            case [Ed25519PrivateKey() as signing, X25519PrivateKey() as receiving]:
                return cls(signing, receiving)
            case [
                Ed25519PrivateKey() as signing,
                X25519PrivateKey() as receiving,
                MLKEM768PrivateKey() as third,
            ]:
                return cls(signing, receiving, third)
            case _:
                raise IdentityError(
                    f"{where} holds no readable pair of keys",
                    expected="the Ed25519 and the X25519 key that were written there, and no other but for ML-KEM-768",
                    advice="restore it from a backup, or move it away to begin anew",
                )

    def to_pem(self) -> bytes:
        """All keys as text, for a private file."""
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        third = b"" if self.lattice is None else self.lattice.private_bytes(*form)
        return self.signing.private_bytes(*form) + self.receiving.private_bytes(*form) + third

    def public(self) -> tuple[bytes, bytes]:
        """The public keys that everybody has: one to verify signatures with, one to seal for."""
        return (
            self.signing.public_key().public_bytes_raw(),
            self.receiving.public_key().public_bytes_raw(),
        )

    def shown(self) -> PublicKeys:
        """All public keys, as cards show them."""
        lattice = b"" if self.lattice is None else self.lattice.public_key().public_bytes_raw()
        return (*self.public(), lattice)

    @property
    def hybrid(self) -> MLKEM768X25519PrivateKey | None:
        """What opens the hybrid envelope."""
        return None if self.lattice is None else MLKEM768X25519PrivateKey(self.lattice, self.receiving)

    def __repr__(self) -> str:
        return "EnvelopeKeys(...)"  # a representation can end in a log


@lru_cache(maxsize=KEPT_IN_MEMORY)  # each call of a site is checked with one of a few keys
def _read_verifier(raw: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(raw)


@lru_cache(maxsize=KEPT_IN_MEMORY)
def _read_recipient(raw: bytes) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(raw)


@dataclass(frozen=True)
class Card:
    """A name and its public keys, valid in one federation for a limited time."""

    name: str
    signing: bytes
    receiving: bytes
    federation: str
    starts: datetime
    ends: datetime
    lattice: bytes = b""
    """With it parcels are sealed in the hybrid envelope; cards without one are written as they always were."""

    @property
    def verifier(self) -> Ed25519PublicKey:
        """The key that checks this party's signatures."""
        return _read_verifier(self.signing)

    @property
    def recipient(self) -> X25519PublicKey:
        """The key that seals for this party."""
        return _read_recipient(self.receiving)

    @property
    def hybrid(self) -> MLKEM768X25519PublicKey | None:
        """The key that seals for this party in the hybrid envelope."""
        if not self.lattice:
            return None
        return MLKEM768X25519PublicKey(MLKEM768PublicKey.from_public_bytes(self.lattice), self.recipient)

    @property
    def keys(self) -> PublicKeys:
        """All public keys it binds."""
        return self.signing, self.receiving, self.lattice

    def check_time(self, now: datetime) -> None:
        """Refuse a card that has ended or has not begun."""
        if not self.starts <= now <= self.ends:
            _refuse(
                f"the card of {self.name} is valid from {self.starts:%Y-%m-%d %H:%M} to "
                f"{self.ends:%Y-%m-%d %H:%M} UTC, now is {now:%Y-%m-%d %H:%M} UTC",
                "a card that is valid now: check the clocks of both machines; if they are right, renew it",
            )

    def _fields(self) -> dict[str, str]:
        return {
            **_say_keys(self.name, self.keys, self.federation),
            "starts": written(self.starts),
            "ends": written(self.ends),
        }


def issue(card: Card, authority: ec.EllipticCurvePrivateKey) -> bytes:
    """The card as it travels: its fields and the authority's signature over them."""
    fields = card._fields()
    signature = authority.sign(_CARD_LABEL + _canonical(fields), _HASH)
    return _canonical({**fields, "signature": signature.hex()})


def open_card(signed: bytes, ca_pem: bytes) -> Card:
    """Read a card and check that an authority of this federation signed it; its time is not looked at.

    `ca_pem` holds the certificates of all authorities that are trusted: while one takes over there are two.
    """
    if len(signed) > LARGEST_CARD:
        _refuse(f"a card of {len(signed)} bytes", f"at most {LARGEST_CARD}")
    try:
        card, signature = _read(signed)
    except Unreadable as reason:
        _refuse(f"a card that cannot be read: {reason}", "one as this federation's coordinator writes it")
    message = _CARD_LABEL + _canonical(card._fields())
    for authority in certificates.load_certificates(ca_pem, where="the federation's CA"):
        key = authority.public_key()
        genuine = isinstance(key, ec.EllipticCurvePublicKey) and _holds(key, signature, message)
        if genuine and card.federation == certificates.federation_of(authority):
            return card
    raise _refusal("a card that this federation's CA did not sign", "one of the same federation")


def read_card(signed: bytes, ca_pem: bytes, *, name: str, now: datetime) -> Card:
    """The keys of the party `name`, if its card is this federation's, says that name and is valid now."""
    card = open_card(signed, ca_pem)
    if card.name != name:
        _refuse(f"a card of {card.name}", f"the card of {name}")
    card.check_time(now)
    return card


def make_request(
    keys: EnvelopeKeys, holder: ec.EllipticCurvePrivateKey, *, name: str, federation_id: str
) -> bytes:
    """A site's request for a card; `holder` is the key of its certificate request."""
    fields = _say_keys(name, keys.shown(), federation_id)
    message = _REQUEST_LABEL + _canonical(fields)
    proofs = {
        "proof": keys.signing.sign(message).hex(),
        "holder": holder.sign(message, _HASH).hex(),
    }
    return _canonical({**fields, **proofs})


def check_request(request: bytes, csr_pem: bytes, *, name: str, federation_id: str) -> PublicKeys:
    """The public keys a request names, after checking that its site holds the keys that signed it."""
    holder = certificates.request_key(certificates.load_request(csr_pem))
    if len(request) > LARGEST_CARD:
        raise _bad_request(f"a request of {len(request)} bytes")
    try:
        record = Record.parse(request)
        keys = _read_keys(record)
        fields = _say_keys(record.text("name"), keys, record.text("federation"))
        proof, held = record.secret("proof"), record.secret("holder")
    except Unreadable as reason:
        raise _bad_request(f"a request that cannot be read: {reason}") from None
    if (fields["name"], fields["federation"]) != (name, federation_id):
        raise _bad_request("a request for another name or another federation")
    message = _REQUEST_LABEL + _canonical(fields)
    if not _holds(holder, held, message) or not _holds(
        Ed25519PublicKey.from_public_bytes(keys[0]), proof, message
    ):
        raise _bad_request("a request that its keys did not sign")
    return keys


def _say_keys(name: str, keys: PublicKeys, federation: str) -> dict[str, str]:
    signing, receiving, lattice = (key.hex() for key in keys)
    fields = {"name": name, "signing": signing, "receiving": receiving, "federation": federation}
    return fields | ({"lattice": lattice} if lattice else {})


def _read_keys(record: Record) -> PublicKeys:
    lattice = _key(record, "lattice", _LATTICE_BYTES) if "lattice" in record.fields else b""
    return _key(record, "signing"), _key(record, "receiving"), lattice


def _read(signed: bytes) -> tuple[Card, bytes]:
    record = Record.parse(signed)
    signing, receiving, lattice = _read_keys(record)
    card = Card(
        name=record.text("name"),
        signing=signing,
        receiving=receiving,
        federation=record.text("federation"),
        starts=record.time("starts"),
        ends=record.time("ends"),
        lattice=lattice,
    )
    signature = record.secret("signature")
    if card.name != COORDINATOR and not is_site_name(card.name):
        raise Unreadable("no name of a site")
    # One card, one text: what a person compares by eye or by hash is what was signed.
    if _canonical({**card._fields(), "signature": signature.hex()}) != signed:
        raise Unreadable("not in its canonical form")
    return card, signature


def _key(record: Record, name: str, size: int = _KEY_BYTES) -> bytes:
    key = record.secret(name)
    if len(key) != size:
        raise Unreadable(f"no key of {size} bytes in '{name}'")
    return key


def _holds(key: ec.EllipticCurvePublicKey | Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, _HASH)
    except InvalidSignature:
        return False
    return True


def _canonical(fields: dict[str, str]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _refuse(seen: str, expected: str) -> NoReturn:
    raise _refusal(seen, expected)


def _refusal(seen: str, expected: str) -> Refused:
    return Refused("card", f"{seen}; expected: {expected}")


def _bad_request(seen: str) -> BadRequest:
    return BadRequest(
        f"card request: {seen}",
        expected="one signed by the key of the certificate request and by the key it names",
        advice="let pfl-client make the request; check that both sides run the same release",
    )
