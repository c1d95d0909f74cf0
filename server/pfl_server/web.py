"""The coordinator's HTTP side: metrics, health, and its status as JSON; read-only."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable
from dataclasses import asdict, replace

import uvicorn
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pfl_common.errors import UserError
from pfl_server.metrics import CoordinatorMetrics, Scene


class WebServer:
    """Serves /metrics, /healthz, /readyz and /status.json."""

    def __init__(self, scene: Scene, *, ready: Callable[[], bool]) -> None:
        self._scene, self._ready = scene, ready
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(CoordinatorMetrics(scene))
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the port, which is new when 0 was asked for."""
        listener = _listen(host, port)
        config = uvicorn.Config(self._app(), log_config=None, lifespan="off", access_log=False)
        self._server = uvicorn.Server(config)
        # Signals belong to the coordinator: it decides when the page goes away.
        self._serving = asyncio.create_task(self._server._serve([listener]))
        return int(listener.getsockname()[1])

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
                Route("/status.json", self._status),
            ]
        )

    async def _metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readiness(self, request: Request) -> Response:
        return PlainTextResponse("ready\n") if self._ready() else PlainTextResponse("draining\n", 503)

    async def _status(self, request: Request) -> Response:
        status = self._scene.status()
        # JSON has no word for "undefined", which a spread over accuracies of 0 is.
        known = {name: value for name, value in status.scores.items() if math.isfinite(value)}
        return JSONResponse(asdict(replace(status, scores=known)))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"port {port} on {host} cannot be used for metrics: {error.strerror}",
            expected="a free port",
            advice="choose another with --http-port, or 0 for any free one",
        ) from None
    return listener
