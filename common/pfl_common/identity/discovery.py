"""Finds the coordinator of the same user on this machine, so that nothing need be typed.

The coordinator leaves a file that only its user can read: who can read it is that user, and that is the whole
proof. It holds a secret that a site uses as it would use an invitation's; the secret goes over no wire.
"""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pfl_common.errors import IdentityError, Unavailable
from pfl_common.files import private
from pfl_common.identity import json_record, proofs
from pfl_common.identity.certificates import KeyPair
from pfl_common.identity.join_file import Addresses
from pfl_common.identity.json_record import Record, Unreadable
from pfl_common.identity.process_identity import boot_of, process_mark

_SHORTEST_PREFIX = 4


class NoCoordinator(Unavailable, IdentityError):
    """This user runs no coordinator on this machine at present."""


@dataclass(frozen=True)
class Found:
    """A coordinator on this machine, as its own file describes it."""

    federation_id: str
    addresses: Addresses
    """Where programs of this machine reach it."""
    ca_pem: bytes
    pid: int
    state_folder: Path
    secret: bytes = field(repr=False)  # a representation can end in a log
    names: tuple[str, ...] = ()
    """Under what other machines may dial it; its certificate holds for these."""
    operator: KeyPair | None = field(default=None, repr=False)
    """With what the operator's commands come; an older coordinator leaves them to make it themselves."""
    operator_address: str = ""
    """Where they come to, if not to the port for sites."""
    hybrid: bool = False
    """It seals in the hybrid envelope for who shows a key for it."""

    def prove(self, name: str, csr_pem: bytes) -> bytes:
        """A site's proof that it runs as the same user."""
        return proofs.prove(self.secret, self.federation_id, name=name, csr_pem=csr_pem)

    @property
    def described(self) -> str:
        """One line for a person who has to choose."""
        return f"{self.federation_id} at {self.addresses.control} (state {self.state_folder})"


def coordinators_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the coordinators of this user leave their files."""
    given = environ.get("XDG_STATE_HOME", "")
    # The XDG rules say that a relative path there is to be ignored.
    state = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return state / "pfl" / "coordinators"


def publish(found: Found, folder: Path | None = None) -> Path:
    """Leave the file by which this user's sites find a coordinator; call it when its ports are open."""
    started = process_mark(found.pid)
    if started is None:
        raise IdentityError(
            f"no process {found.pid}",
            expected="the coordinator's own process",
            advice="publish a running one",
        )
    fields: dict[str, object] = {
        "federation": found.federation_id,
        "control": found.addresses.control,
        "enrolment": found.addresses.enrolment,
        "http": found.addresses.http,
        "names": ",".join(found.names),
        "ca": found.ca_pem.decode("ascii"),
        "pid": found.pid,
        "started": started,
        "machine": platform.node(),
        "state_folder": str(found.state_folder),
        "secret": found.secret.hex(),
    }
    if found.operator is not None:
        fields |= {"operator_key": found.operator.key_pem.decode("ascii")}
        fields |= {"operator_certificate": found.operator.certificate_pem.decode("ascii")}
    fields |= {"operator_address": found.operator_address} if found.operator_address else {}
    fields |= {"envelope": "hybrid"} if found.hybrid else {}
    place = private.make_folder(folder or coordinators_folder())
    path = place / f"{found.federation_id}.json"
    with private.locked(place):
        private.write(path, json_record.dump(fields))
    return path


def withdraw(federation_id: str, folder: Path | None = None, *, pid: int) -> None:
    """Take the file away when the coordinator `pid` stops; the file of a successor stays."""
    place = folder or coordinators_folder()
    if not place.is_dir():
        return
    private.check_folder(place)
    path = place / f"{federation_id}.json"
    with private.locked(place):
        if path.exists() and _record(path).fields.get("pid") == pid:
            private.remove(path)


def find(server: str | None, folder: Path | None = None) -> Found:
    """The coordinator of this user on this machine.

    `server`, its federation id, an address or its state folder, picks one of several.
    """
    place = folder or coordinators_folder()
    running = _running(place)
    chosen = running if server is None else [one for one in running if _is_meant(one, server)]
    if len(chosen) == 1:
        return chosen[0]
    if not running:
        raise NoCoordinator(
            f"no coordinator of this user runs on this machine (looked in {place})",
            expected="one that runs",
            advice="start one with pfl-server; if it runs on another machine, a site is given the operator's file "
            "(pfl-client --join FILE), and pfl is typed on that machine",
        )
    listed = "; ".join(one.described for one in running)
    wanted = "one of them" if server is None else f"one that fits --server {server}"
    raise IdentityError(
        f"{len(running)} running: {listed}",
        expected=wanted,
        advice=f"say which one: --server {running[0].federation_id}",
    )


def list_running(folder: Path | None = None) -> list[Found]:
    """All coordinators of this user on this machine."""
    return _running(folder or coordinators_folder())


def _running(place: Path) -> list[Found]:
    if not place.is_dir():
        return []
    private.check_folder(place)
    found: list[Found] = []
    with private.locked(place):
        for path in sorted(place.glob("*.json")):
            record = _record(path)
            if record.fields.get("machine") != platform.node():
                continue  # a home directory shared by machines: that process is not ours to judge
            if _is_alive(record, path):
                found.append(_found(record, path))
            elif not _may_be_alive(record):
                private.remove(path)
    return found


def _is_alive(record: Record, path: Path) -> bool:
    try:
        return process_mark(record.number("pid")) == record.text("started")
    except Unreadable as reason:
        raise _damaged(path, reason) from None


def _may_be_alive(record: Record) -> bool:
    """Inside a container two programs can be told of two boots: then this file is not ours to clear away."""
    mark = process_mark(record.number("pid"))
    return mark is not None and boot_of(mark) != boot_of(record.text("started"))


def _is_meant(found: Found, server: str) -> bool:
    under = [found.addresses, *map(found.addresses.under, found.names)]
    addresses = {address for one in under for address in (one.control, one.enrolment, one.http)}
    by_prefix = len(server) >= _SHORTEST_PREFIX and found.federation_id.startswith(server)
    return by_prefix or (server in addresses) or Path(server).absolute() == found.state_folder.absolute()


def _record(path: Path) -> Record:
    try:
        return Record.parse(private.read(path))
    except Unreadable as reason:
        raise _damaged(path, reason) from None


def _found(record: Record, path: Path) -> Found:
    try:
        return Found(
            federation_id=record.text("federation"),
            addresses=Addresses(
                control=record.text("control"),
                enrolment=record.text("enrolment"),
                http=str(record.fields.get("http") or ""),
            ),
            ca_pem=record.text("ca").encode(),
            pid=record.number("pid"),
            state_folder=Path(record.text("state_folder")),
            secret=record.secret("secret"),
            names=tuple(filter(None, str(record.fields.get("names") or "").split(","))),
            operator=_operator(record),
            operator_address=str(record.fields.get("operator_address") or ""),
            hybrid=record.fields.get("envelope") == "hybrid",
        )
    except Unreadable as reason:
        raise _damaged(path, reason) from None


def _operator(record: Record) -> KeyPair | None:
    if not record.fields.get("operator_key"):
        return None
    key, certificate = record.text("operator_key"), record.text("operator_certificate")
    return KeyPair(key.encode(), certificate.encode())


def _damaged(path: Path, reason: Unreadable) -> IdentityError:
    return IdentityError(
        f"{path} is damaged: {reason}",
        expected="the file of a running coordinator",
        advice="remove the file and start that coordinator again",
    )
