"""The file that `pfl invite` writes and `--join` reads: the text with which one site enters a federation.

Its last field is a checksum: files like this travel by mail and memory stick, and a cut or re-wrapped copy
must say so here and not as a failed proof at the coordinator.
"""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pfl_common.errors import IdentityError
from pfl_common.files import private
from pfl_common.identity import certificates, json_record, proofs
from pfl_common.identity.json_record import Record, Unreadable
from pfl_common.identity.names import check_site_name

LARGEST = 1 << 16

_FORMAT = "pfl join file 1"
_ABOUT = (
    "An invitation for one site. Keep it private; it works once: pfl-client --data FOLDER --join THIS_FILE"
)


@dataclass(frozen=True)
class Addresses:
    """A coordinator's addresses, each as host:port; `http` is its status page and metrics."""

    control: str
    enrolment: str
    http: str = ""

    def under(self, name: str) -> "Addresses":
        """The ports that sites dial under another name of the coordinator's machine; the status page stays. A name
        with a port is a proxy's, which passes both kinds of calls on.
        """
        if split_port(name)[1]:
            return Addresses(name, name, self.http)
        control, enrolment = (
            host_and_port(name, address.rpartition(":")[2]) for address in (self.control, self.enrolment)
        )
        return Addresses(control, enrolment, self.http)


def split_port(name: str) -> tuple[str, str]:
    """A name that sites dial, and its port if it has one: `fl.example.org:443`, `[::1]:443`, but `::1` has none."""
    host, _, port = name.rpartition(":")
    has_port = port.isdigit() and (":" not in host or (host.startswith("[") and host.endswith("]")))
    return (host, port) if host and has_port else (name, "")


def host_and_port(host: str, port: int | str) -> str:
    """One word to dial; an IPv6 address needs brackets before a port."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


@dataclass(frozen=True)
class Invitation:
    """Everything a site needs to join a federation it has never contacted."""

    federation_id: str
    site: str
    addresses: Addresses
    ca_pem: bytes
    expires: datetime
    secret: bytes = field(repr=False)  # a representation can end in a log
    hybrid: bool = False
    """The coordinator seals in the hybrid envelope for who shows a key for it."""

    @property
    def id(self) -> str:
        """Which invitation this is; may be noted anywhere."""
        return proofs.name_of(self.secret)

    def prove(self, csr_pem: bytes) -> bytes:
        """The proof that we hold this invitation, to send beside the certificate request."""
        return proofs.prove(self.secret, self.federation_id, name=self.site, csr_pem=csr_pem)


def write_join_file(invitation: Invitation, path: Path, *, replace: bool = False) -> None:
    """Write an invitation where only its owner can read it; an existing file is kept unless `replace`."""
    fields: dict[str, object] = {
        "format": _FORMAT,
        "about": _ABOUT,
        "federation": invitation.federation_id,
        "site": invitation.site,
        "enrolment": invitation.addresses.enrolment,
        "control": invitation.addresses.control,
        "expires": json_record.written(invitation.expires),
        "ca": invitation.ca_pem.decode("ascii"),
        "secret": invitation.secret.hex(),
    }
    fields |= {"envelope": "hybrid"} if invitation.hybrid else {}
    write = private.write if replace else private.create
    try:
        write(path, json_record.dump(fields | {"checksum": _checksum(fields)}))
    except FileExistsError:
        raise IdentityError(
            f"{path} exists already",
            expected="a name that is free",
            advice=f"remove the old file, then: pfl invite {invitation.site} --again",
        ) from None


def read_join_file(path: Path, *, now: datetime) -> Invitation:
    """Read an invitation; one that is missing, something else, damaged or expired is refused."""
    record = _parsed(path)
    try:
        invitation = _invitation(record)
    except (Unreadable, IdentityError) as reason:
        raise _damaged(path, str(reason)) from None
    if now > invitation.expires:
        raise IdentityError(
            f"the invitation {path} expired on {invitation.expires:%Y-%m-%d %H:%M} UTC",
            expected=f"one that is valid now, {now:%Y-%m-%d %H:%M} UTC",
            advice=f"ask the operator for a new invitation: pfl invite {invitation.site} --again",
        )
    return invitation


def _parsed(path: Path) -> Record:
    if not path.is_file():
        raise IdentityError(
            f"no file {path}",
            expected="the join file the operator sent",
            advice="check the path; the operator writes such a file with: pfl invite NAME",
        )
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    try:
        if len(content) > LARGEST:
            raise Unreadable(f"it is larger than {LARGEST} bytes")
        record = Record.parse(content)
    except Unreadable as reason:
        # Of a cut file the beginning is left, enough to know what it was.
        if _FORMAT.encode() in content[:200]:
            raise _damaged(path, str(reason)) from None
        raise _no_join_file(path) from None
    if record.fields.get("format") != _FORMAT:
        raise _no_join_file(path)
    return record


def _invitation(record: Record) -> Invitation:
    signed = {name: value for name, value in record.fields.items() if name != "checksum"}
    if record.text("checksum") != _checksum(signed):
        raise Unreadable("its checksum does not fit its content")
    invitation = Invitation(
        federation_id=record.text("federation"),
        site=check_site_name(record.text("site")),
        addresses=Addresses(control=record.text("control"), enrolment=record.text("enrolment")),
        ca_pem=record.text("ca").encode(),
        expires=record.time("expires"),
        secret=record.secret("secret"),
        hybrid=record.fields.get("envelope") == "hybrid",
    )
    authorities = certificates.load_certificates(invitation.ca_pem, where="the federation's CA")
    if {certificates.federation_of(one) for one in authorities} != {invitation.federation_id}:
        raise Unreadable("its CA certificate belongs to another federation")
    if len(invitation.secret) != proofs.SECRET_BYTES:
        raise Unreadable("its secret has the wrong length")
    return invitation


def _checksum(fields: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _no_join_file(path: Path) -> IdentityError:
    return IdentityError(
        f"{path} is not a join file",
        expected="a file written by: pfl invite NAME",
        advice="check the path, or ask the operator to send the file once more",
    )


def _damaged(path: Path, reason: str) -> IdentityError:
    return IdentityError(
        f"the join file {path} is damaged: {reason}",
        expected="the file exactly as the operator's command wrote it",
        advice="ask the operator to send it once more, as an attachment and not as text",
    )
