"""The coordinator's read-only HTTP port: metrics, health, the status page and its facts as JSON."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

import uvicorn
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pfl_common.errors import UserError
from pfl_common.spec.messages import RunStatus
from pfl_server.status import connections, page
from pfl_server.status.exporter import CoordinatorMetrics, Scene

BACKLOG = 32
"""Connections that wait to be taken; asyncio takes so many in one turn of its loop, before any can be closed."""


class Page(Scene, Protocol):
    """The source of everything the pages show."""

    async def look(self) -> None:
        """See to what is slow to look at."""

    def status(self) -> RunStatus:
        """The content of `pfl status`."""


class WebServer:
    """Serves /metrics, /healthz, /readyz, /status.json and the status page."""

    def __init__(self, scene: Page, *, ready: Callable[[], bool]) -> None:
        self._scene, self._ready = scene, ready
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(CoordinatorMetrics(scene))
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, *, most: int = connections.BoundedConnection.most) -> int:
        """Listen, to so many connections at once; gives the port, which is new when 0 was asked for."""
        listener = _listen(host, port)
        address, bound = listener.getsockname()[:2]
        app = page.Guard(self._app(), loopback=page.is_loopback(address))
        config = uvicorn.Config(
            app,
            http=connections.at_most(most),
            ws="none",
            log_config=None,
            lifespan="off",
            access_log=False,
            backlog=BACKLOG,
        )
        self._server = uvicorn.Server(config)
        # Signals belong to the coordinator: it decides when the page goes away.
        self._serving = asyncio.create_task(self._server._serve([listener]))
        return int(bound)

    async def stop(self) -> None:
        """Let open requests end, then close."""
        if self._server and self._serving:
            self._server.should_exit = True
            await self._serving

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/metrics", self._metrics),
                Route("/healthz", self._health),
                Route("/readyz", self._readiness),
                *page.routes(self._scene.status),
            ]
        )

    async def _metrics(self, request: Request) -> Response:
        await self._scene.look()
        # Prometheus asks for OpenMetrics; what does not, a person's `curl` among them, gets the older text.
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={"content-type": content_type})

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readiness(self, request: Request) -> Response:
        return PlainTextResponse("ready\n") if self._ready() else PlainTextResponse("draining\n", 503)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be TCP: only then does asyncio send an answer's end at once, and not 40 ms later.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # At once, and not when uvicorn comes to it: people who have been told the port are let in from now on.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(
            f"port {port} on {host} cannot be used for the status page: {error.strerror}",
            expected="a free port of an address of this machine",
            advice="choose another with --http-port (0: any free one) or --http-host (0.0.0.0: all addresses)",
        ) from None
    return listener
