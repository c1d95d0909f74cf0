"""The site's numbers for Prometheus, and whether it is well: served by prometheus-client alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any  # WSGI's own types are callables and dictionaries of anything
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pfl_client.watch import Watch
from pfl_common.errors import UserError


class SiteMetrics(Collector):
    """Communication cost, time by phase, own accuracy; no label names another site."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterable[Metric]:
        """All metrics as they are now."""
        watch = self._watch
        yield GaugeMetricFamily(
            "pfl_site_connected", "1 while the coordinator answers.", float(watch.connected)
        )
        yield GaugeMetricFamily("pfl_site_round", "Round of the last task.", watch.round)
        moved = CounterMetricFamily("pfl_site_parcel_bytes", "Bytes of parcels moved.", labels=["direction"])
        moved.add_metric(["down"], watch.received)
        moved.add_metric(["up"], watch.sent)
        yield moved
        yield _labelled(CounterMetricFamily, "pfl_site_tasks", "Tasks begun.", "kind", watch.tasks)
        yield _labelled(
            CounterMetricFamily,
            "pfl_site_phase_seconds",
            "Time spent in a task's phases.",
            "phase",
            watch.seconds,
        )
        yield _labelled(
            GaugeMetricFamily,
            "pfl_site_accuracy_ratio",
            "Own accuracy, last measured.",
            "measure",
            watch.accuracy,
        )
        yield _labelled(
            GaugeMetricFamily, "pfl_site_learning", "What training said last.", "name", watch.metrics
        )
        yield CounterMetricFamily("pfl_site_declined_tasks", "Tasks this site did not do.", watch.declined)
        yield CounterMetricFamily(
            "pfl_site_refused_messages", "Messages the coordinator refused.", watch.refused
        )
        yield CounterMetricFamily(
            "pfl_site_lost_trainers", "Trainer processes that died.", watch.trainers_lost
        )


class HealthServer:
    """/metrics, /healthz and /readyz on a thread of their own, on this machine unless told else."""

    def __init__(self, watch: Watch, *, ready: Callable[[], bool]) -> None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(SiteMetrics(watch))
        self._metrics, self._ready = make_wsgi_app(registry), ready
        self._server: WSGIServer | None = None

    def start(self, host: str, port: int) -> int:
        """Listen; gives the port."""
        try:
            self._server = make_server(host, port, self._answer, handler_class=_Quiet)
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


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # the base class's name
        """A scrape every few seconds is not worth a line."""


def _say(status: str, words: str, start_response: Any) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [words.encode()]


def _labelled(family: Any, name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
    metric: Metric = family(name, words, labels=[label])
    for value, number in sorted(values.items()):
        metric.add_metric([value], number)  # type: ignore[attr-defined]  # both families have it
    return metric
