"""The site's numbers for Prometheus and its health checks, served by prometheus-client alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from socketserver import ThreadingMixIn
from typing import Any, TypeAlias  # Any: WSGI's own types are callables and dictionaries of anything
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pfl_client.connection.link import CALLS, INIT, Traffic
from pfl_client.daemon.status import DOING, PHASES, Watch
from pfl_common.errors import UserError
from pfl_common.metric import Number, Value, fill
from pfl_common.spec.messages import DECLINES
from pfl_common.spec.run import Kind

Values: TypeAlias = Mapping[tuple[str, ...], Value]
"""By the values of a number's labels; () where it has none."""

MOST_AT_ONCE = 32
"""Requests answered side by side; who comes then waits for one of them."""

_MEASURES = "point/split/view, for example pre/test/combined"


@dataclass(frozen=True)
class Surroundings:
    """Values looked up at each scrape; None where they cannot be known."""

    certificate_end: float | None = None
    """In seconds of the epoch."""
    disk_free: int | None = None
    """Bytes, on the disk of the state folder."""


@dataclass(frozen=True)
class Seen:
    """The input of a scrape."""

    watch: Watch
    crossed: Values
    around: Surroundings


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)


def _one(value: float | None) -> Values:
    """A number without labels; none while it is not known."""
    return {} if value is None else {(): value}


def _by_label(values: Mapping[str, Value]) -> Values:
    # A copy: the daemon's own thread goes on counting.
    return {(name,): value for name, value in dict(values).items()}


def _who(watch: Watch) -> tuple[str, ...]:
    return watch.site, watch.run.id, watch.run.method, version("pfl-net"), watch.trainer.device


_SHOWN: tuple[tuple[Number, Callable[[Seen], Values]], ...] = (
    (
        Number(
            "pfl_site",
            "info",
            "Who this is, in which run, and where it computes.",
            ("site", "run", "method", "version", "device"),
            "device: empty until the first task is done",
        ),
        lambda seen: {_who(seen.watch): 1},
    ),
    (
        Number("pfl_site_connected", "gauge", "1 while the coordinator answers."),
        lambda seen: _one(seen.watch.connected),
    ),
    (
        Number("pfl_site_doing", "gauge", "What the site does: one of them is 1.", ("doing",), _join(DOING)),
        lambda seen: {(name,): float(name == seen.watch.doing) for name in DOING},
    ),
    (
        Number("pfl_site_round", "gauge", "Round of the last task."),
        lambda seen: _one(seen.watch.round),
    ),
    (
        Number("pfl_site_rounds_planned", "gauge", "Rounds the run is to have."),
        lambda seen: _one(seen.watch.run.rounds),
    ),
    (
        Number("pfl_site_task_timestamp_seconds", "gauge", "When the last task began."),
        lambda seen: _one(seen.watch.task_began),
    ),
    (
        Number("pfl_site_tasks", "counter", "Tasks begun.", ("kind",), _join(Kind)),
        lambda seen: _by_label(seen.watch.tasks),
    ),
    (
        Number(
            "pfl_site_phase_seconds",
            "summary",
            "Time in a task's phases. A download up to 128 KiB comes with its task: on its way it is part of wait.",
            ("phase",),
            _join(PHASES),
        ),
        lambda seen: _by_label(seen.watch.seconds),
    ),
    (
        Number(
            "pfl_site_bytes",
            "counter",
            "Bytes of messages as they crossed, repeated parts included.",
            ("direction", "kind"),
            f"direction: down, up; kind: {_join((INIT, *Kind, CALLS))}",
        ),
        lambda seen: seen.crossed,
    ),
    (
        Number(
            "pfl_site_left_updates",
            "counter",
            "Updates that left the building, each with the coordinator's receipt in audit.jsonl.",
        ),
        lambda seen: _one(sum(left.updates for left in seen.watch.left.copy().values())),
    ),
    (
        Number("pfl_site_left_bytes", "counter", "Bytes of the updates that left the building."),
        lambda seen: _one(sum(left.size for left in seen.watch.left.copy().values())),
    ),
    (
        Number("pfl_site_accuracy_ratio", "gauge", "Own accuracy, last measured.", ("measure",), _MEASURES),
        lambda seen: _by_label(seen.watch.run.accuracy),
    ),
    (
        Number("pfl_site_loss", "gauge", "Own loss, last measured.", ("measure",), _MEASURES),
        lambda seen: _by_label(seen.watch.run.loss),
    ),
    (
        Number(
            "pfl_site_learning", "gauge", "What training said last.", ("name",), "as the method names them"
        ),
        lambda seen: _by_label(seen.watch.run.learning),
    ),
    (
        Number("pfl_site_declined", "counter", "Tasks not done.", ("reason",), _join(DECLINES)),
        lambda seen: _by_label(seen.watch.declined),
    ),
    (
        Number(
            "pfl_site_refused",
            "counter",
            "Messages the coordinator refused.",
            ("code",),
            "late, superseded, no_room and others; runbook.md explains each, under PflRefusalsRising",
        ),
        lambda seen: _by_label(seen.watch.refused),
    ),
    (
        Number("pfl_site_lost_trainers", "counter", "Trainer processes that died."),
        lambda seen: _one(seen.watch.trainer.lost),
    ),
    (
        Number(
            "pfl_site_trainer_memory_bytes",
            "gauge",
            "Memory of the trainer process at the end of its last task.",
            ("of",),
            "resident, device (what torch holds on a graphics card; absent on a CPU)",
        ),
        lambda seen: _by_label(seen.watch.trainer.memory),
    ),
    (
        Number(
            "pfl_site_batches_halved",
            "gauge",
            "1 if the last training passed its batches through the network in two halves, for want of memory.",
        ),
        lambda seen: _one(seen.watch.trainer.halved),
    ),
    (
        Number("pfl_site_certificate_end_timestamp_seconds", "gauge", "End of this site's certificate."),
        lambda seen: _one(seen.around.certificate_end),
    ),
    (
        Number("pfl_site_disk_free_bytes", "gauge", "Free on the disk of the state folder."),
        lambda seen: _one(seen.around.disk_free),
    ),
)

NUMBERS = tuple(number for number, _ in _SHOWN)
"""All that a site exposes about itself, beside what every Python process does."""


class SiteMetrics(Collector):
    """Exposes the declared numbers at each scrape; no label names another site."""

    def __init__(self, watch: Watch, traffic: Traffic, look_around: Callable[[], Surroundings]) -> None:
        self._watch, self._traffic, self._look_around = watch, traffic, look_around

    def collect(self) -> Iterable[Metric]:
        """All metrics as they are now."""
        seen = Seen(self._watch, self._traffic.crossed(), self._look_around())
        for number, read in _SHOWN:
            yield fill(number, read(seen))


class HealthServer:
    """Serves /metrics, /healthz and /readyz on threads of its own, on this machine unless told otherwise."""

    def __init__(self, metrics: SiteMetrics, *, ready: Callable[[], bool]) -> None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(metrics)
        self._metrics, self._ready = make_wsgi_app(registry), ready
        self._server: WSGIServer | None = None

    def start(self, host: str, port: int) -> int:
        """Listen; gives the port."""
        try:
            self._server = make_server(
                host, port, self._answer, server_class=_SideBySide, handler_class=_Quiet
            )
        except OSError as error:
            raise UserError(
                f"port {port} on {host} cannot be used for metrics: {error.strerror}",
                expected="a free port",
                advice="choose another with --http-port, or 0 for any free one",
            ) from None
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        return self._server.server_port

    def stop(self) -> None:
        """Close the port."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            page: Iterable[bytes] = self._metrics(environ, start_response)
            return page
        if path == "/healthz":
            return _say("200 OK", "ok\n", start_response)
        if path == "/readyz":
            ready = self._ready()
            words = "ready\n" if ready else "draining\n"
            return _say("200 OK" if ready else "503 Service Unavailable", words, start_response)
        return _say("404 Not Found", "try /metrics, /healthz or /readyz\n", start_response)


class _SideBySide(ThreadingMixIn, WSGIServer):
    """A server with one thread per request, so that a silent client delays nobody else."""

    daemon_threads = True
    request_queue_size = MOST_AT_ONCE

    def __init__(self, *given: Any, **named: Any) -> None:  # Any: as in the base classes
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(*given, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a request to a thread of its own."""
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the request on that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _Quiet(WSGIRequestHandler):
    """Serves a request without logging clients that fall silent or hang up."""

    timeout = 5.0
    """Seconds until a silent line is hung up; a probe of a cluster gives up not much later."""

    def handle(self) -> None:
        """Serve one request; a client that falls silent or hangs up midway is not logged."""
        with suppress(TimeoutError, ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # the base class's name
        """Log nothing: a scrape comes every few seconds."""


def _say(status: str, words: str, start_response: Any) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [words.encode()]
