"""The site's side of its identity: a key that never leaves the site, and the certificate that names it.

site.key   the site's private key
site.csr   the request it enrols with; kept, so that a repeated request is the same one
site.pem   the site's certificate, then those of the federation's authorities (two while one takes over); one file, so
           that they always belong together
site.seal  the site's keys to sign and to receive with, made when they are first asked for
site.card  the federation's word that those two are this site's
site.tried which invitations these keys have been tried with, each by its id
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from pfl_common.errors import IdentityError
from pfl_common.files import private
from pfl_common.identity import cards, certificates
from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.identity.errors import BadRequest
from pfl_common.identity.names import check_site_name

RENEWED_BELOW = 1 / 3

_KEY_FILE = "site.key"
_REQUEST_FILE = "site.csr"
_CERTIFICATE_FILE = "site.pem"
_ENVELOPE_FILE = "site.seal"
_CARD_FILE = "site.card"
_TRIED_FILE = "site.tried"


@dataclass(frozen=True)
class _Membership:
    """A site's certificate and its authorities', parsed, with what follows from them."""

    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...]

    @cached_property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @cached_property
    def ca_pem(self) -> bytes:
        return b"".join(authority.public_bytes(Encoding.PEM) for authority in self.authorities)

    @cached_property
    def name(self) -> str:
        return certificates.holder_of(self.certificate).name

    @cached_property
    def federation_id(self) -> str:
        return certificates.federation_of(self.authorities[0])


class Keyring:
    """The keys and certificates of one site, in a private folder.

    Certificates, card and keys are read when they are first asked for and then held until `store`, `store_card` or the
    next key: nobody else may write into the folder meanwhile.
    """

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey) -> None:
        self._folder = folder
        self._key = key
        self._held: _Membership | None = None
        self._held_card: bytes | None = None
        self._held_keys: EnvelopeKeys | None = None

    @classmethod
    def open(cls, folder: Path) -> "Keyring":
        """Open the site's keys, making them at the first start."""
        private.make_folder(folder)
        path = folder / _KEY_FILE
        with private.locked(folder):
            if not path.exists():
                private.write(path, certificates.key_to_pem(certificates.new_key()))
        return cls(folder, certificates.load_key(private.read(path), where=str(path)))

    @property
    def key_pem(self) -> bytes:
        """The site's private key, for this machine's TLS and nothing else."""
        return certificates.key_to_pem(self._key)

    @property
    def enrolled(self) -> bool:
        """Whether the site has a certificate, expired or not."""
        return (self._folder / _CERTIFICATE_FILE).exists()

    @property
    def certificate_pem(self) -> bytes:
        """The site's certificate."""
        return self._stored().certificate_pem

    @property
    def ca_pem(self) -> bytes:
        """The certificates of the federation's authorities: of one, or of two while one takes over."""
        return self._stored().ca_pem

    @property
    def federation_id(self) -> str:
        """The federation this site belongs to."""
        return self._stored().federation_id

    @property
    def name(self) -> str:
        """The name the federation knows this site by."""
        return self._stored().name

    @property
    def ends(self) -> datetime:
        """When the site's certificate ends."""
        return self._stored().certificate.not_valid_after_utc

    def csr(self, name: str) -> bytes:
        """The request for a certificate of this name; asked again, the same bytes."""
        check_site_name(name)
        path = self._folder / _REQUEST_FILE
        with private.locked(self._folder):
            if path.exists():
                kept = private.read(path)
                if self._is_mine(kept, name):
                    return kept
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
            request = x509.CertificateSigningRequestBuilder().subject_name(subject)
            fresh = request.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
            private.write(path, fresh)
            return fresh

    def store(self, cert_pem: bytes, ca_pem: bytes) -> None:
        """Keep the certificate the coordinator gave, after checking that it is ours and its CA's."""
        certificate = certificates.load_certificates(cert_pem, where="the coordinator's answer")[0]
        authorities = tuple(certificates.load_certificates(ca_pem, where="the federation's CA"))
        if certificate.public_key() != self._key.public_key():
            raise IdentityError(
                "a certificate for another key than this site's",
                expected="a certificate for the key that was sent",
                advice="start pfl-client again; if this repeats, tell the operator",
            )
        certificates.check_issued(certificate, authorities)
        self._check_same_federation(authorities)
        fresh = _Membership(certificate, authorities)
        private.write(self._folder / _CERTIFICATE_FILE, fresh.certificate_pem + fresh.ca_pem)
        self._held = fresh

    @property
    def fingerprint(self) -> str:
        """Of the site's key: what its engineer and the operator compare."""
        return certificates.key_fingerprint(self._key.public_key())

    def envelope_keys(self, *, hybrid: bool = False) -> EnvelopeKeys:
        """The site's keys to sign and to receive with, made at the first call; with `hybrid` also for that envelope."""
        if self._held_keys is not None and (self._held_keys.lattice is not None or not hybrid):
            return self._held_keys
        path = self._folder / _ENVELOPE_FILE
        with private.locked(self._folder):
            known = path.exists()
            kept = (
                EnvelopeKeys.from_pem(private.read(path), where=str(path))
                if known
                else EnvelopeKeys.generate()
            )
            keys = kept.with_lattice() if hybrid else kept
            if not known or keys.lattice is not kept.lattice:
                private.write(path, keys.to_pem())
            self._held_keys = keys
            return keys

    def card_request(self, name: str, federation_id: str, *, hybrid: bool = False) -> bytes:
        """The site's request for a card, sent beside its certificate request. One that names the key of the hybrid
        envelope is understood only where the coordinator has shown one itself.
        """
        check_site_name(name)
        keys = self.envelope_keys(hybrid=hybrid)
        asked = keys if hybrid else replace(keys, lattice=None)
        return cards.make_request(asked, self._key, name=name, federation_id=federation_id)

    @property
    def card(self) -> bytes | None:
        """The site's card as it travels; None before the first."""
        path = self._folder / _CARD_FILE
        if self._held_card is None and path.exists():
            self._held_card = private.read(path)
        return self._held_card

    def store_card(self, signed: bytes) -> None:
        """Keep the card the coordinator gave, after checking that it is ours and this federation's."""
        card = cards.open_card(signed, self.ca_pem)
        signing, receiving, lattice = self.envelope_keys().shown()
        if (card.name, *card.keys) not in (
            (self.name, signing, receiving, lattice),
            (self.name, signing, receiving, b""),
        ):
            raise IdentityError(
                f"a card of {card.name} that is not for this site's name and keys",
                expected=f"a card of {self.name} for the keys that were sent",
                advice="start pfl-client again; if this repeats, tell the operator",
            )
        private.write(self._folder / _CARD_FILE, signed)
        self._held_card = signed

    def has_tried(self, invitation: str) -> bool:
        """Whether these keys came by the invitation of this id, or were refused with it."""
        return invitation in self._tried()

    def note_tried(self, invitation: str) -> None:
        """Remember an invitation that has been tried with these keys."""
        tried = dict.fromkeys((*self._tried(), invitation))
        private.write(self._folder / _TRIED_FILE, "".join(f"{name}\n" for name in tried).encode())

    def _tried(self) -> list[str]:
        path = self._folder / _TRIED_FILE
        return private.read(path).decode("ascii", errors="replace").split() if path.exists() else []

    def needs_renewal(self, now: datetime) -> bool:
        """Whether less than a third of the certificate's life is left."""
        return certificates.life_left(self._stored().certificate, now) < RENEWED_BELOW

    def renewal_due(self, now: datetime) -> float:
        """In how many seconds two thirds of the certificate's life are over."""
        held = self._stored().certificate
        life = held.not_valid_after_utc - held.not_valid_before_utc
        return (held.not_valid_after_utc - life * RENEWED_BELOW - now).total_seconds()

    def expired(self, now: datetime) -> bool:
        """Whether the certificate is too old for the coordinator to accept."""
        return now > self.ends

    def check(self, now: datetime) -> None:
        """Refuse to go on with a certificate that is expired or not valid yet."""
        start, end = self._stored().certificate.not_valid_before_utc, self.ends
        if now > end:
            raise IdentityError(
                f"the certificate of {self.name} expired on {end:%Y-%m-%d %H:%M} UTC",
                expected=f"one that is valid now, {now:%Y-%m-%d %H:%M} UTC",
                advice=f"ask the operator for a new invitation: pfl invite {self.name} --again",
            )
        if now < start:
            raise IdentityError(
                f"the certificate of {self.name} is valid from {start:%Y-%m-%d %H:%M} UTC only",
                expected=f"one that is valid now, {now:%Y-%m-%d %H:%M} UTC",
                advice="set this machine's clock",
            )

    def _stored(self) -> _Membership:
        if self._held is None:
            self._held = self._read_certificates()
        return self._held

    def _read_certificates(self) -> _Membership:
        path = self._folder / _CERTIFICATE_FILE
        if not path.exists():
            raise IdentityError(
                f"no certificate in {self._folder}",
                expected="a site that has joined a federation",
                advice="join one: pfl-client --data FOLDER --join FILE",
            )
        found = certificates.load_certificates(private.read(path), where=str(path))
        if len(found) < 2:
            raise IdentityError(
                f"{len(found)} certificates in {path}",
                expected="two or more, the site's and its authorities'",
                advice="move the file away and join again with a new invitation",
            )
        return _Membership(found[0], tuple(found[1:]))

    def _is_mine(self, request_pem: bytes, name: str) -> bool:
        try:
            request = certificates.load_request(request_pem)
        except BadRequest:
            return False  # a damaged copy is simply made anew
        names = [attribute.value for attribute in request.subject]
        return names == [name] and request.public_key() == self._key.public_key()

    def _check_same_federation(self, authorities: Sequence[x509.Certificate]) -> None:
        # Vault and outbox beside these keys belong to one federation; another must not inherit them unseen. One of the
        # authorities has to be known here: what a new one says of itself proves nothing.
        if self.enrolled and not set(authorities) & set(self._stored().authorities):
            seen = certificates.federation_of(authorities[0])
            raise IdentityError(
                f"a certificate of federation {seen}",
                expected=f"one of federation {self.federation_id}, to which this state folder belongs",
                advice="give another folder for the other federation: --state FOLDER; if the operator says that this "
                f"one has a new authority, move {self._folder} away and start again with the new invitation",
            )
