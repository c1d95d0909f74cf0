"""A federation in one process over the real network: own authority, gRPC with mutual TLS on loopback, sealed parcels,
and each site's daemon and vault. Only the trainers are threads here, which take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.trainer_process.api import DataFolder
from pfl_common.identity import Authority, Keyring
from pfl_common.spec.run import ClientId
from pfl_deploy.simulation.loopback import LoopbackBench
from pfl_server.envelopes.sealed import call_book, seal_with
from pfl_server.network.rpc import Callers
from pfl_server.network.server import GrpcServer
from pfl_server.run.host import RunHost
from pfl_server.settings import ServerSettings


class Neighbours:
    """A coordinator and its sites, which know each other by nothing but their keys and a port."""

    def __init__(self, settings: ServerSettings, folders: Sequence[Path], state: Path) -> None:
        now = datetime.now(UTC)
        self._authority = Authority.open_or_create(settings.state / "federation", now=now)
        self._host = RunHost(settings, seal_with(self._authority, now=now))
        self._folders, self._state = folders, state

    def play(self) -> tuple[Path, dict[ClientId, Path]]:
        """A run from its beginning to its end; gives the folders of the run, the coordinator's and each site's."""
        return asyncio.run(self._play())

    async def _play(self) -> tuple[Path, dict[ClientId, Path]]:
        now, turn = datetime.now(UTC), asyncio.Lock()
        server = GrpcServer(Callers(call_book(self._authority, now=now)))
        pair = self._authority.server_certificate((), now=now)
        port = await server.start(
            self._host, host="127.0.0.1", port=0, pair=pair, ca_pem=self._authority.ca_pem
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._host.run())
                for folder in self._folders:
                    group.create_task(self._take_part(folder, port, turn))
        finally:
            await server.stop(0)
            self._host.runs.close()
        assert self._host.books is not None
        run = self._host.books.spec.id
        sites = {folder.name: self._state / folder.name / "runs" / run for folder in self._folders}
        return self._host.settings.state / "runs" / run, sites

    async def _take_part(self, folder: Path, port: int, turn: asyncio.Lock) -> None:
        keyring = self._let_in(folder.name)
        async with GrpcLink(f"127.0.0.1:{port}", keyring) as link:
            daemon = Daemon(
                DataFolder(folder, folder.name, device="cpu"),
                link=link,
                bench=LoopbackBench(turn),
                envelopes=SealedEnvelopes(keyring, secret=b"test" * 8),
                state=self._state / folder.name,
            )
            await daemon.run()

    def _let_in(self, site: ClientId) -> Keyring:
        now, keyring = datetime.now(UTC), Keyring.open(self._state / site / "identity")
        keyring.store(self._authority.sign_site(keyring.csr(site), site, now=now), self._authority.ca_pem)
        asked = keyring.card_request(site, self._authority.federation_id)
        keyring.store_card(self._authority.sign_card(asked, keyring.csr(site), name=site, now=now))
        return keyring
