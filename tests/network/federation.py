"""A coordinator's two ports on this machine, a desk behind them, and sites with certificates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pfl_client.connection.channel import Patience
from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.operator_link import OperatorLink
from pfl_common.identity import Addresses, Authority, Found, KeyPair, Keyring, Ledger, new_secret
from pfl_server.envelopes.sealed import call_book
from pfl_server.network.administration import Administration
from pfl_server.network.enrolment_port import EnrolmentServer
from pfl_server.network.rpc import Callers
from pfl_server.network.server import GrpcServer
from pfl_server.sites.notices import Notices
from tests.network.file_desk import FileDesk

HASTY = Patience(
    call_seconds=10, wait_seconds=10, bulk_seconds=30, first_pause_seconds=0.01, longest_pause_seconds=0.02
)


class Federation:
    """One coordinator with its authority; started and stopped by a fixture."""

    def __init__(self, folder: Path, *, hosts: tuple[str, ...] = (), approve: bool = False) -> None:
        self.folder = folder
        self.now = datetime.now(UTC)
        self.authority = Authority.open_or_create(folder / "authority", now=self.now)
        self.ledger = Ledger(folder / "ledger", self.authority.ca_pem)
        self.local_secret = new_secret()
        self.notices = Notices()
        self.office = EnrolmentServer(
            self.authority,
            self.ledger,
            local_secret=self.local_secret,
            approval=self.notices if approve else None,
        )
        self.rotations = 0
        self.administration = Administration(
            self.authority, self.ledger, self.notices, rotated=self._note_rotation
        )
        self.server = GrpcServer(self.callers(), renew=self.office.renew, administration=self.administration)
        (folder / "desk").mkdir()
        self.desk = FileDesk(folder / "desk")
        self.pair: KeyPair = self.authority.server_certificate(hosts, now=self.now)
        self.port = self.enrolment_port = 0

    def _note_rotation(self) -> None:
        """As the upkeep does it: what is trusted now is shown from the next line on."""
        self.rotations += 1
        self.pair = self.authority.server_certificate((), now=self.now)
        self.server.show(self.pair, self.authority.ca_pem)
        self.office.show(self.pair, self.authority.ca_pem)

    def operator(self, *, port: int = 0, tell: Callable[[str], None] = lambda _: None) -> OperatorLink:
        """The operator's line."""
        pair, address = self.authority.new_operator(self.now), f"127.0.0.1:{port or self.port}"
        return OperatorLink(address, pair, ca_pem=self.authority.ca_pem, patience=HASTY, tell=tell)

    async def start(self) -> None:
        """Open both ports."""
        self.port = await self.start_control()
        self.enrolment_port = await self.office.start(host="127.0.0.1", port=0, pair=self.pair)

    async def start_control(self, port: int = 0) -> int:
        """Open the sites' port."""
        return await self.server.start(
            self.desk, host="127.0.0.1", port=port, pair=self.pair, ca_pem=self.authority.ca_pem
        )

    async def stop(self) -> None:
        """Close both ports."""
        await self.server.stop(0)
        await self.office.stop(0)

    @property
    def addresses(self) -> Addresses:
        """Where it listens."""
        return Addresses(control=f"127.0.0.1:{self.port}", enrolment=f"127.0.0.1:{self.enrolment_port}")

    @property
    def found(self) -> Found:
        """What a site of the same user reads in the discovery file."""
        return Found(
            self.authority.federation_id,
            self.addresses,
            self.authority.ca_pem,
            pid=1,
            state_folder=self.folder,
            secret=self.local_secret,
        )

    def keyring(self, name: str, *, since: datetime | None = None) -> Keyring:
        """The keys of a site, with a certificate made at a given moment."""
        keyring = Keyring.open(self.folder / f"keys-{name}")
        certificate = self.authority.sign_site(keyring.csr(name), name, now=since or self.now)
        keyring.store(certificate, self.authority.ca_pem)
        asked = keyring.card_request(name, self.authority.federation_id)
        card = self.authority.sign_card(asked, keyring.csr(name), name=name, now=since or self.now)
        keyring.store_card(card)
        return keyring

    def callers(self) -> Callers:
        """What the coordinator knows its callers by."""
        return Callers(call_book(self.authority, now=self.now))

    def link(self, name: str, *, port: int = 0, patience: Patience = HASTY) -> GrpcLink:
        """A site's line to this coordinator, directly or by another port."""
        return GrpcLink(f"127.0.0.1:{port or self.port}", self.keyring(name), patience=patience)
