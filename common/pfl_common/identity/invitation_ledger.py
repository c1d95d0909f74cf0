"""Invitations: `pfl invite hospital_a` writes a file whose secret lets one site in, once.

The file goes to the site by hand. The coordinator keeps per site one small record with a key derived from the
secret, enough to check a proof and not enough to make the file again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pfl_common.errors import IdentityError
from pfl_common.files import private
from pfl_common.identity import certificates, json_record, proofs
from pfl_common.identity.errors import (
    ApprovalAwaited,
    ApprovalDenied,
    BadRequest,
    InvitationExpired,
    InvitationUsed,
    NameTaken,
    SiteRemoved,
    UnknownSite,
    WrongProof,
    tell_fingerprint,
)
from pfl_common.identity.join_file import Addresses, Invitation
from pfl_common.identity.json_record import Record, Unreadable
from pfl_common.identity.names import check_site_name, is_site_name

INVITATION_DAYS = 7

Approval: TypeAlias = Literal["", "waiting", "approved", "denied"]
_APPROVALS: tuple[Approval, ...] = get_args(Approval)
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass
class _Entry:
    """The coordinator's record of one invited site; `used_by` is a public key's fingerprint."""

    key: bytes = field(repr=False)
    expires: datetime
    used_by: str
    approval: Approval = ""
    """Of the key in `used_by`: nothing where nobody has to approve."""
    removed: bool = False
    """The operator has removed this site: what let it in lets it in no more."""


class Ledger:
    """The coordinator's record of invitations and of the sites that used them."""

    def __init__(self, folder: Path, ca_pem: bytes) -> None:
        self._folder = private.make_folder(folder)
        self._ca_pem = ca_pem
        self._federation_id = certificates.federation_id(ca_pem)
        self._nobody = folder / ".nobody"
        if not self._nobody.exists():
            # A record like all others, whose random key nobody holds a secret for: it is read where there is none.
            unusable = _Entry(key=proofs.new_secret(), expires=_NEVER, used_by="")
            private.write(self._nobody, _to_json("", unusable))

    def count(self) -> int:
        """How many sites are known by name."""
        return sum(1 for path in self._folder.glob("*.json") if is_site_name(path.stem))

    def invite(
        self,
        name: str,
        now: datetime,
        *,
        addresses: Addresses,
        again: bool = False,
        days: int = INVITATION_DAYS,
    ) -> Invitation:
        """Invite a site; `again` makes an earlier invitation of the same name worthless."""
        check_site_name(name)
        expires = certificates.whole_second(now) + timedelta(days=days)
        secret = proofs.new_secret()
        key = proofs.derive_key(secret, self._federation_id, name=name)
        with private.locked(self._folder):
            known = self._path(name).exists()
            if known and not again and not (entry := self._read(self._path(name))).removed:
                raise _already_invited(name, entry)
            self._write(name, _Entry(key=key, expires=expires, used_by=""))
        return Invitation(self._federation_id, name, addresses, self._ca_pem, expires, secret)

    def redeem(
        self, name: str, csr_pem: bytes, *, proof: bytes, now: datetime, approve: bool = False
    ) -> None:
        """Let a site in on its invitation, once; a refusal says why. With `approve` its keys wait for the operator.

        The same key may come again until the invitation expires: the answer may have been lost on the way,
        and only the site that came first has both the key and the secret. Wrong proofs do not spend it: they are as
        good as hopeless, and whoever makes them must not keep the site out.
        """
        applicant = _fingerprint(csr_pem)
        with private.locked(self._folder):
            # Until the proof is right the same is done for every name: how long it takes tells nobody who is invited.
            path = self._record_of(name)
            entry = self._read(path)
            try:
                proofs.check(entry.key, self._federation_id, name=name, csr_pem=csr_pem, proof=proof)
            except WrongProof as wrong:
                raise (_nobody_invited() if path == self._nobody else wrong) from None
            _check_unspent(name, entry, applicant=applicant, now=now)
            if not entry.used_by:
                entry.used_by = applicant
                self._write(name, entry)
            self._check_approved(name, entry, approve=approve)

    def admit_local(
        self, name: str, csr_pem: bytes, *, proof: bytes, secret: bytes, approve: bool = False
    ) -> None:
        """Let in a site of the same user on this machine, which proves that it read the discovery file.

        The first key to come owns the name; a second folder of the same name is refused.
        """
        if not is_site_name(name):
            raise _bad_name(name)
        applicant = _fingerprint(csr_pem)
        key = proofs.derive_key(secret, self._federation_id, name=name)
        proofs.check(key, self._federation_id, name=name, csr_pem=csr_pem, proof=proof)
        with private.locked(self._folder):
            if not self._path(name).exists():
                # No one can make a proof for this random key: an invitation of this name was never given out.
                unusable = proofs.new_secret()
                entry = _Entry(key=unusable, expires=_NEVER, used_by=applicant)
                self._write(name, entry)
            else:
                entry = self._read(self._path(name))
                if entry.removed:
                    raise SiteRemoved(name)
                if entry.used_by != applicant:
                    raise _name_taken(name)
            self._check_approved(name, entry, approve=approve)

    def close(self, name: str) -> None:
        """A site is removed: nothing that let it in, or was to let it in, does so any more."""
        with private.locked(self._folder):
            if is_site_name(name) and self._path(name).exists():
                entry = self._read(self._path(name))
                entry.removed = True
                self._write(name, entry)

    def decide(self, name: str, approval: Literal["approved", "denied"], *, fingerprint: str = "") -> str:
        """Approve or deny the keys that wait under a name; gives their fingerprint, which must be the one given."""
        with private.locked(self._folder):
            entry = self._read(self._path(name)) if is_site_name(name) and self._path(name).exists() else None
            if entry is None or entry.approval not in ("waiting", approval):
                raise _nobody_waits(name)
            if fingerprint and not entry.used_by.startswith(fingerprint.replace(" ", "").lower()):
                raise _other_fingerprint(name, entry.used_by)
            entry.approval = approval
            self._write(name, entry)
            return entry.used_by

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Sites that wait to be approved, each with the fingerprint of its keys."""
        for path in sorted(self._folder.glob("*.json")):
            entry = self._read(path)
            if entry.approval == "waiting" and not entry.removed:
                yield path.stem, entry.used_by

    def knows(self, name: str) -> bool:
        """Whether a site of this name was ever invited or let in, and not forgotten."""
        return is_site_name(name) and self._path(name).exists()

    def holder_of(self, name: str) -> str:
        """The fingerprint of the key that came by a site's present invitation; nothing if none has."""
        return self._read(self._path(name)).used_by if self.knows(name) else ""

    def _check_approved(self, name: str, entry: _Entry, *, approve: bool) -> None:
        # Who is in renews its certificate elsewhere: only who comes by an invitation comes here.
        if approve and not entry.approval:
            entry.approval = "waiting"
            self._write(name, entry)
        if entry.approval == "waiting" and approve:
            raise ApprovalAwaited(name, entry.used_by)
        if entry.approval == "denied":
            raise ApprovalDenied(name)

    def forget(self, name: str) -> None:
        """Forget a site, so that its name is free again."""
        check_site_name(name)
        with private.locked(self._folder):
            private.remove(self._path(name))

    def _record_of(self, name: str) -> Path:
        # The name comes from a stranger: it becomes part of a path only after it proved harmless.
        path = self._path(name) if is_site_name(name) else self._nobody
        return path if path.exists() else self._nobody

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, path: Path) -> _Entry:
        try:
            record = Record.parse(private.read(path))
            return _Entry(
                key=record.secret("key"),
                expires=record.time("expires"),
                used_by=str(record.fields.get("used_by") or ""),
                approval=_read_approval(record),
                removed=bool(record.fields.get("removed")),
            )
        except Unreadable as reason:
            raise IdentityError(
                f"{path} is damaged: {reason}",
                expected="the record of an invitation",
                advice=f"invite the site once more: pfl invite {path.stem} --again",
            ) from None

    def _write(self, name: str, entry: _Entry) -> None:
        private.write(self._path(name), _to_json(name, entry))


def _to_json(name: str, entry: _Entry) -> bytes:
    fields: dict[str, object] = {
        "site": name,
        "key": entry.key.hex(),
        "expires": json_record.written(entry.expires),
        "used_by": entry.used_by,
    }
    # Records of sites that nobody has decided about are written as they always were.
    fields |= {"approval": entry.approval} if entry.approval else {}
    fields |= {"removed": True} if entry.removed else {}
    return json_record.dump(fields)


def _fingerprint(csr_pem: bytes) -> str:
    return certificates.key_fingerprint(certificates.request_key(certificates.load_request(csr_pem)))


def _read_approval(record: Record) -> Approval:
    said = record.fields.get("approval", "")
    for known in _APPROVALS:
        if said == known:
            return known
    raise Unreadable("no known word in 'approval'")


def _check_unspent(name: str, entry: _Entry, *, applicant: str, now: datetime) -> None:
    if entry.removed:
        raise SiteRemoved(name)
    if entry.used_by and entry.used_by != applicant:
        raise InvitationUsed(
            f"the invitation of {name} has been used already, with another key",
            expected="an unused invitation",
            advice=f"if the site lost its state folder: pfl invite {name} --again; if not, find out who did",
        )
    # Who came in time and waits for the operator has not come too late.
    if now > entry.expires and not entry.approval:
        raise InvitationExpired(
            f"the invitation of {name} expired on {entry.expires:%Y-%m-%d %H:%M} UTC",
            expected=f"one that is valid now, {now:%Y-%m-%d %H:%M} UTC",
            advice=f"ask the operator for a new invitation: pfl invite {name} --again",
        )


def _already_invited(name: str, entry: _Entry) -> IdentityError:
    seen = (
        "has joined already"
        if entry.used_by
        else f"is invited already, until {entry.expires:%Y-%m-%d %H:%M} UTC"
    )
    return IdentityError(
        f"{name} {seen}",
        expected="a name that is free",
        advice=f"to make the earlier invitation worthless and write a new one: pfl invite {name} --again",
    )


def _nobody_invited() -> UnknownSite:
    return UnknownSite(
        "a site that nobody invited",
        expected="the name of an invited site",
        advice="if it should take part: pfl invite NAME",
    )


def _nobody_waits(name: str) -> IdentityError:
    return IdentityError(
        f"no site called {name[:63]!r} waits to be approved",
        expected="one that has come with a valid invitation, to a coordinator that was started with --approve",
        advice="look who waits: pfl status",
    )


def _other_fingerprint(name: str, found: str) -> IdentityError:
    return IdentityError(
        f"{name} waits with keys of another fingerprint, {tell_fingerprint(found)}",
        expected="the fingerprint that its engineer reads out",
        advice=f"if they differ somebody else has the invitation: pfl deny {name}, then pfl invite {name} --again",
    )


def _name_taken(name: str) -> NameTaken:
    return NameTaken(
        f"a second site called {name}",
        expected="one name for each site",
        advice=f"give one of them another name: --name {name}_2; if it is the same site without its "
        f"state folder: pfl invite {name} --again",
    )


def _bad_name(name: str) -> BadRequest:
    return BadRequest(
        f"a site called {name[:63]!r}",
        expected="a name of a-z, 0-9, '_', '-'",
        advice="name the site yourself: --name hospital_a",
    )
