"""A proxy that ends TLS, as a load balancer or a company's gateway does: it sees and can change every byte inside."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pfl_common.identity import Authority


class OpeningProxy:
    """Speaks TLS with a certificate of its own to the site, and TLS without one to the coordinator."""

    def __init__(self, folder: Path, target: int, *, federation_ca: bytes, own: Authority) -> None:
        self.seen = bytearray()
        self.change: Callable[[bytes], bytes] = lambda piece: piece
        self._target = target
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        pair = own.server_certificate(["localhost"], now=datetime.now(UTC))
        (folder / "proxy.key").write_bytes(pair.key_pem)
        (folder / "proxy.pem").write_bytes(pair.certificate_pem)
        self._inner = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._inner.load_cert_chain(folder / "proxy.pem", folder / "proxy.key")
        self._inner.set_alpn_protocols(["h2"])
        self._outer = ssl.create_default_context(cadata=federation_ca.decode())
        self._outer.set_alpn_protocols(["h2"])

    async def start(self) -> int:
        """Listen on a free port; gives its number."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._inner)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.close()
        for end in self._ends:
            end.transport.abort()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _serve(self, site: asyncio.StreamReader, to_site: asyncio.StreamWriter) -> None:
        coordinator, to_coordinator = await asyncio.open_connection(
            "127.0.0.1", self._target, ssl=self._outer, server_hostname="localhost"
        )
        self._ends |= {to_site, to_coordinator}
        pumps = (self._pump(site, to_coordinator), self._pump(coordinator, to_site))
        self._lines |= (lines := {asyncio.create_task(pump) for pump in pumps})
        await asyncio.wait(lines)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(1 << 16):
                self.seen += piece
                target.write(self.change(piece))
                await target.drain()
        except OSError:
            pass  # one side hung up; so does the other
        finally:
            target.close()
