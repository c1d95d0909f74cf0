"""The coordinator's numbers for Prometheus, read from live state when they are scraped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pfl_common.messages import RunStatus
from pfl_server.fleet import Fleet
from pfl_server.stage import Watch


class Scene(Protocol):
    """What a scrape looks at."""

    @property
    def watch(self) -> Watch | None: ...

    @property
    def fleet(self) -> Fleet | None: ...

    def status(self) -> RunStatus: ...


class CoordinatorMetrics(Collector):
    """Rounds, sites, bytes, refusals, accuracy. No label ever names a site."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def collect(self) -> Iterable[Metric]:
        """All metrics as they are now."""
        status = self._scene.status()
        sites = GaugeMetricFamily(
            "pfl_sites", "Registered sites by whether they are heard.", labels=["state"]
        )
        for state in ("here", "away"):
            sites.add_metric([state], sum(site.state == state for site in status.sites))
        yield sites
        yield GaugeMetricFamily("pfl_rounds_planned", "Rounds the run is to have.", status.rounds)
        if self._scene.watch is not None:
            yield from _of_run(self._scene.watch)
        if self._scene.fleet is not None:
            yield from _of_line(self._scene.fleet)


def _of_run(watch: Watch) -> Iterable[Metric]:
    yield GaugeMetricFamily("pfl_round", "Round that is under way, or the last one.", watch.round)
    yield GaugeMetricFamily("pfl_round_cohort", "Sites asked in the round.", watch.cohort)
    yield GaugeMetricFamily("pfl_round_counted", "Updates counted in the last closed round.", watch.counted)
    yield GaugeMetricFamily("pfl_round_awaited", "Sites the round still waits for.", len(watch.awaited))
    yield GaugeMetricFamily(
        "pfl_round_duration_seconds", "Time from opening to closing of the last round.", watch.round_seconds
    )
    yield _counted("pfl_rounds", "Rounds by how they ended.", "outcome", watch.outcomes)
    yield _counted("pfl_losses", "Updates that did not come, by reason.", "reason", watch.losses)
    accuracy = GaugeMetricFamily(
        "pfl_accuracy_ratio",
        "Accuracy over the sites of the last evaluation.",
        labels=["split", "view", "statistic"],
    )
    for name, summary in sorted(watch.scores.items()):
        split, _, view = name.partition("/")
        for statistic in ("acc_macro", "acc_micro", "acc_std", "acc_worst_decile"):
            accuracy.add_metric([split, view, statistic.removeprefix("acc_")], summary[statistic])
    yield accuracy


def _of_line(fleet: Fleet) -> Iterable[Metric]:
    yield _counted("pfl_parcel_bytes", "Bytes of parcels, by direction.", "direction", fleet.bytes)
    yield _counted("pfl_refusals", "Messages not taken, by code.", "code", fleet.refusals)


def _counted(name: str, words: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, words, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
