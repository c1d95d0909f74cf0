"""The federation's own certificate authority, which certifies its sites without any outside party.

One file holds key and certificate together, so that no crash can leave one without the other. Sites get
short-lived certificates and renew them; there is no list of revoked ones to fetch: the coordinator keeps the cards,
and asks its own folder at each call (`site_cards`).

While a new authority takes over there are two. The new one signs what sites get, the present one what the coordinator
shows them, since some of them know no other yet; both are trusted. In the end the new one is the present one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pfl_common.errors import IdentityError
from pfl_common.files import private
from pfl_common.identity import cards, certificates, issuing, json_record
from pfl_common.identity.cards import Card, EnvelopeKeys, PublicKeys
from pfl_common.identity.certificates import KeyPair
from pfl_common.identity.issuing import Leaf, Signer
from pfl_common.identity.json_record import Record
from pfl_common.identity.key_place import AUTHORITY_FILE, COMING_FILE, SEALING_FILE, KeyPlace
from pfl_common.identity.names import check_site_name
from pfl_common.identity.site_cards import SiteCards

SITE_LIFE, OPERATOR_LIFE, SERVER_LIFE = timedelta(days=30), timedelta(days=30), timedelta(days=365)
RENEWED_BELOW = 1 / 3
CARDS_FOLDER = "cards"

_OPERATOR_FILE = "operator.pem"
PUBLIC_FILE, _FORMER_FILE, _ROTATION_FILE = "authority.crt", "former.crt", "rotation.json"
_ALWAYS_SERVED = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Lives:
    """How long what the authority signs is good for."""

    site: timedelta = SITE_LIFE
    server: timedelta = SERVER_LIFE


class Authority:
    """The federation's certificate authority: its private folder on the coordinator, and the place of its keys."""

    def __init__(self, folder: Path, place: KeyPlace, present: Signer, coming: Signer | None = None) -> None:
        self._folder, self._place = folder, place
        self._present, self._coming = present, coming
        self.lives = Lives()
        self._keys: EnvelopeKeys | None = None
        self.cards = SiteCards(folder / CARDS_FOLDER, lambda: self.ca_pem, self._every_authority)

    @classmethod
    def open_or_create(
        cls,
        folder: Path,
        *,
        now: datetime,
        place: KeyPlace | None = None,
        brought: Signer | None = None,
    ) -> Authority:
        """Open the authority kept in this folder, or make one; two programs at once make only one.

        `brought` is one that a company's own authority has signed: it becomes the federation's.
        """
        private.make_folder(folder)
        where = place or KeyPlace(folder)
        with private.locked(folder):
            if where.signer(AUTHORITY_FILE) is None:
                _check_nowhere_else(folder, where)
                if brought is not None:
                    issuing.check_brought(brought, now)
                where.keep_signer(AUTHORITY_FILE, brought or where.make_signer(now))
        opened = cls.open(folder, place=where)
        opened._check_brought(brought)
        return opened

    @classmethod
    def open(cls, folder: Path, *, place: KeyPlace | None = None) -> Authority:
        """Open the authority kept in this folder; it must be there."""
        where = place or KeyPlace(folder)
        if folder.exists():
            private.check_folder(folder)
        present, next_one = where.signer(AUTHORITY_FILE), where.signer(COMING_FILE)
        if present is None:
            raise _not_there(folder)
        if next_one is not None and next_one.certificate == present.certificate:
            # Killed in the middle of `finish`.
            where.remove(COMING_FILE)
            next_one = None
        opened = cls(folder, where, present, next_one)
        opened._write_public()
        return opened

    @property
    def ca_pem(self) -> bytes:
        """The certificates by which a site knows its coordinator; of the present authority first."""
        return b"".join(_to_pem(signer.certificate) for signer in self._signers())

    @property
    def federation_id(self) -> str:
        """The short name of this federation, made from its first authority's certificate."""
        return certificates.federation_of(self._present.certificate)

    @property
    def rotating(self) -> bool:
        """Whether a new authority is taking over."""
        return self._coming is not None

    def server_certificate(
        self, hosts: Sequence[str], *, now: datetime, life: timedelta | None = None
    ) -> KeyPair:
        """A fresh key and certificate for the coordinator's ports, for these names and this machine's own."""
        names = tuple(issuing.host_name(host) for host in dict.fromkeys([*hosts, *_ALWAYS_SERVED]))
        key, lasting = certificates.new_key(), life or self.lives.server
        leaf = Leaf("coordinator", "coordinator", ExtendedKeyUsageOID.SERVER_AUTH, names, lasting)
        return KeyPair(
            certificates.key_to_pem(key), issuing.issue(self._present, leaf, key.public_key(), now)
        )

    def sign_site(self, csr_pem: bytes, name: str, *, now: datetime) -> bytes:
        """A certificate that makes the request's key the site `name`, whatever the request says."""
        check_site_name(name)
        public_key = certificates.request_key(certificates.load_request(csr_pem))
        uri = self._uri("site", name)
        leaf = Leaf(name, "site", ExtendedKeyUsageOID.CLIENT_AUTH, (uri,), self.lives.site)
        return issuing.issue(self._newest, leaf, public_key, now)

    def sign_card(self, request: bytes, csr_pem: bytes, *, name: str, now: datetime) -> bytes:
        """A card that makes the keys of this request the site `name`'s; the certificate request vouches.

        The coordinator keeps it: nobody has to show a card to be known by it.
        """
        check_site_name(name)
        public = cards.check_request(request, csr_pem, name=name, federation_id=self.federation_id)
        holder = certificates.request_key(certificates.load_request(csr_pem))
        card = self._card(self._newest, name, public, now=now, life=self.lives.site)
        signed = cards.issue(card, self._newest.key)
        self.cards.keep(card, signed, holder=certificates.key_fingerprint(holder))
        return signed

    def card_of(self, name: str, *, now: datetime) -> Card:
        """The card of a site that has enrolled; refused when there is none or its time is over."""
        return self.cards.find(name, now=now)

    def coordinator_keys(self, *, hybrid: bool = False) -> EnvelopeKeys:
        """The coordinator's own keys to sign and to receive with, made at the first call."""
        with private.locked(self._folder):
            if self._keys is not None and (self._keys.lattice is not None or not hybrid):
                return self._keys
            content = self._place.read(SEALING_FILE)
            where = str(self._place.folder / SEALING_FILE)
            kept = EnvelopeKeys.from_pem(content, where=where) if content else EnvelopeKeys.generate()
            keys = kept.with_lattice() if hybrid else kept
            if content is None or keys.lattice is not kept.lattice:
                self._place.write(SEALING_FILE, keys.to_pem())
            self._keys = keys
            return keys

    def coordinator_card(self, *, now: datetime, hybrid: bool = False) -> bytes:
        """The coordinator's card, made anew at each call for the same keys."""
        signing, receiving, lattice = self.coordinator_keys(hybrid=hybrid).shown()
        public = signing, receiving, lattice if hybrid else b""
        card = self._card(self._present, cards.COORDINATOR, public, now=now, life=self.lives.server)
        return cards.issue(card, self._present.key)

    def operator_certificate(self, *, now: datetime) -> KeyPair:
        """The key and certificate of the operator's commands, made anew near their end."""
        path = self._folder / _OPERATOR_FILE
        with private.locked(self._folder):
            if path.exists():
                kept = _pair(private.read(path), path)
                if self._still_good(kept, now):
                    return kept
            fresh = self.new_operator(now)
            private.write(path, fresh.key_pem + fresh.certificate_pem)
            return fresh

    def new_operator(self, now: datetime) -> KeyPair:
        """A fresh key and certificate for the operator's commands, kept nowhere."""
        key = certificates.new_key()
        uri = self._uri("operator", "operator")
        leaf = Leaf("operator", "operator", ExtendedKeyUsageOID.CLIENT_AUTH, (uri,), OPERATOR_LIFE)
        return KeyPair(
            certificates.key_to_pem(key), issuing.issue(self._present, leaf, key.public_key(), now)
        )

    # -- one authority after another

    def rotate(self, *, now: datetime, until: datetime | None = None) -> None:
        """Let a new authority take over, beside the present one until `finish`, which is due at `until` if that is
        said; one that takes over already goes on.
        """
        with private.locked(self._folder):
            if until is not None:
                day = json_record.dump({"until": json_record.written(until)})
                private.write(self._folder / _ROTATION_FILE, day)
            if self._coming is None:
                fresh = self._place.make_signer(now, federation=self.federation_id)
                self._place.keep_signer(COMING_FILE, fresh)
                self._coming = fresh

    def lacking(self, *, now: datetime) -> tuple[str, ...]:
        """Sites whose cards are good and were not signed by the authority that takes over: they know the other only."""
        if self._coming is None:
            return ()
        coming, found = issuing.to_pem(self._coming.certificate), []
        for name in self.cards.names():
            card = next(iter(self.cards.signers(name)), None)
            if card is not None and card.ends > now and not self.cards.is_signed_by(name, coming):
                found.append(name)
        return tuple(found)

    def finish(self) -> None:
        """Trust the authority that took over alone; what the other one signed is refused from now on."""
        with private.locked(self._folder):
            if self._coming is None:
                return
            path = self._folder / _FORMER_FILE
            former = private.read(path) if path.exists() else b""
            private.write(path, former + issuing.to_pem(self._present.certificate))
            # A kill between these two leaves both: what is coming is then present already, and begins to be no more.
            self._place.keep_signer(AUTHORITY_FILE, self._coming)
            self._place.remove(COMING_FILE)
            private.remove(self._folder / _ROTATION_FILE)
            self._present, self._coming = self._coming, None
        self._write_public()

    @property
    def until(self) -> datetime | None:
        """When the authority that takes over is to be trusted alone; None where the operator says it."""
        path = self._folder / _ROTATION_FILE
        if self._coming is None or not path.exists():
            return None
        return Record.parse(private.read(path)).time("until")

    @property
    def _newest(self) -> Signer:
        return self._coming or self._present

    def _signers(self) -> tuple[Signer, ...]:
        return (self._present,) if self._coming is None else (self._present, self._coming)

    def _every_authority(self) -> bytes:
        path = self._folder / _FORMER_FILE
        return self.ca_pem + (private.read(path) if path.exists() else b"")

    def _write_public(self) -> None:
        """Beside keys that lie elsewhere or are locked: whose folder this is."""
        if not self._place.hidden:
            return
        for left in (self._folder / name for name in (AUTHORITY_FILE, SEALING_FILE)):
            if left.exists() and self._place.folder == self._folder:
                self._place.read(left.name)  # which locks it
            elif left.exists():
                raise IdentityError(
                    f"{left} is still there, and the keys in use lie in {self._place.folder}",
                    expected="the keys in one place: who copies the state would have these",
                    advice=f"compare the two; if they are the same, or yours are the newer ones: rm '{left}'",
                )
        path, mine = self._folder / PUBLIC_FILE, issuing.to_pem(self._present.certificate)
        kept = private.read(path) if path.exists() else mine
        if certificates.federation_id(kept) != self.federation_id:
            raise IdentityError(
                f"the keys in {self._place.folder} are of federation {self.federation_id}",
                expected=f"those of federation {certificates.federation_id(kept)}, to which {self._folder} belongs",
                advice="name the folder with this federation's keys: --keys FOLDER",
            )
        if kept != mine or not path.exists():
            private.write(path, mine)

    def _check_brought(self, brought: Signer | None) -> None:
        if brought is not None and brought.certificate not in (one.certificate for one in self._signers()):
            raise IdentityError(
                f"--ca-cert is another authority than that of federation {self.federation_id}",
                expected="the one this federation began with, or no --ca-cert",
                advice="leave --ca-cert and --ca-key out, or begin a new federation with another --state",
            )

    def _still_good(self, pair: KeyPair, now: datetime) -> bool:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        ours = certificate.issuer == self._present.certificate.subject
        return ours and RENEWED_BELOW < certificates.life_left(certificate, now) <= 1

    def _uri(self, role: str, name: str) -> x509.UniformResourceIdentifier:
        # Strict verifiers want an alternative name in every certificate, and a site has no host name.
        return x509.UniformResourceIdentifier(f"pfl://{self.federation_id}/{role}/{name}")

    def _card(self, signer: Signer, name: str, public: PublicKeys, *, now: datetime, life: timedelta) -> Card:
        starts = certificates.whole_second(now) - certificates.skew_of(life)
        signing, receiving, lattice = public
        end = issuing.end_of(signer, now, life)
        return Card(name, signing, receiving, self.federation_id, starts, end, lattice)


@lru_cache(maxsize=16)  # asked for with each call of a site
def _to_pem(certificate: x509.Certificate) -> bytes:
    return issuing.to_pem(certificate)


def read_brought(certificate: Path, key: Path) -> Signer:
    """An authority that the company's own has signed, from the two files its IT hands out."""
    content = key.read_bytes() + b"\n" + certificate.read_bytes()
    return issuing.read_signer(content, where=f"{certificate} with {key}")


def _check_nowhere_else(folder: Path, place: KeyPlace) -> None:
    """A second authority for one state would know none of its sites."""
    beside = KeyPlace(folder)
    for path in (folder / AUTHORITY_FILE, folder / f"{AUTHORITY_FILE}.locked", folder / PUBLIC_FILE):
        if path.exists() and place.folder != beside.folder:
            raise IdentityError(
                f"{place.folder} holds no {AUTHORITY_FILE}, and {folder} belongs to a federation already",
                expected="its keys where --keys says",
                advice=f"move {AUTHORITY_FILE} and {SEALING_FILE} there from {folder}, or from a backup",
            )
    if (folder / PUBLIC_FILE).exists():
        raise _not_there(folder)


def _not_there(folder: Path) -> IdentityError:
    if (folder / PUBLIC_FILE).exists():
        return IdentityError(
            f"the keys of the certificate authority do not lie in {folder}",
            expected="the place they were moved to",
            advice="say where they are: --keys FOLDER, or --keys credentials in a systemd unit",
        )
    return IdentityError(
        f"no certificate authority in {folder}",
        expected=f"the file {AUTHORITY_FILE} of a federation",
        advice="start pfl-server once with this state folder, or name the right one with --state",
    )


def _pair(content: bytes, path: Path) -> KeyPair:
    key: ec.EllipticCurvePrivateKey = certificates.load_key(content, where=str(path))
    certificate = certificates.load_certificates(content, where=str(path))[0]
    return KeyPair(certificates.key_to_pem(key), issuing.to_pem(certificate))
