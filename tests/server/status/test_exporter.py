"""The numbers are those of a reading of the counters, one sample for each place, phase and code."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.metrics_core import Metric

from pfl_server.run.attempt import Watch
from pfl_server.status.exporter import CoordinatorMetrics
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.counters import PHASES, PLACES, Meter


class Still:
    """A coordinator without a run, that has counted something."""

    watch: Watch | None = None
    named = ("", "fedavg", "1")
    state = "gathering"
    planned = 3
    heard = (1, 2, 3)
    members: Mapping[str, tuple[bool, int]] = {}
    around: Mapping[str, float] = {}
    ends: Mapping[str, float] = {}

    def __init__(self, counters: Reading) -> None:
        self.counters = counters


def collect(reading: Reading) -> dict[str, Metric]:
    return {metric.name: metric for metric in CoordinatorMetrics(Still(reading)).collect()}


def values(metric: Metric, suffix: str = "") -> dict[tuple[str, ...], float]:
    """By the values of its labels; of a summary only one of its two numbers."""
    ending = metric.name + suffix
    return {tuple(s.labels.values()): s.value for s in metric.samples if s.name == ending}


def test_what_was_counted_is_told() -> None:
    """Bytes by direction and kind, phases by count and seconds, refusals by code; what was not counted is 0."""
    meter = Meter()
    meter.moved("up", "train", 7)
    meter.took("fold", 0.5)
    meter.took("fold", 0.25)
    meter.refusals["size"] += 2
    told = collect(meter.read())
    crossed = values(told["pfl_bytes"], "_total")
    assert dict.fromkeys(PLACES, 0.0) | {("up", "train"): 7.0} == crossed
    counts, seconds = (values(told["pfl_phase_seconds"], suffix) for suffix in ("_count", "_sum"))
    assert {(phase,): 0.0 for phase in PHASES} | {("fold",): 2.0} == counts
    assert {(phase,): 0.0 for phase in PHASES} | {("fold",): 0.75} == seconds
    assert {("size",): 2.0} == values(told["pfl_refusals"], "_total")


def test_sites_have_series_of_their_own_only_where_they_are_told() -> None:
    """By default there is none; each that is told has two."""
    scene = Still(Reading())
    told = {metric.name: metric for metric in CoordinatorMetrics(scene).collect()}
    assert ({}, {}) == (values(told["pfl_member_here"]), values(told["pfl_member_counted"], "_total"))
    scene.members = {"a": (True, 3), "b": (False, 0)}
    told = {metric.name: metric for metric in CoordinatorMetrics(scene).collect()}
    assert {("a",): 1.0, ("b",): 0.0} == values(told["pfl_member_here"])
    assert {("a",): 3.0, ("b",): 0.0} == values(told["pfl_member_counted"], "_total")


def test_a_reading_stays_what_it_was() -> None:
    """What is counted after it was taken is for the next one."""
    meter = Meter()
    before = meter.read()
    meter.moved("down", "calls", 9)
    meter.took("seal", 1.0)
    assert 0.0 == values(collect(before)["pfl_bytes"], "_total")["down", "calls"]
    assert 0.0 == values(collect(before)["pfl_phase_seconds"], "_count")["seal",]
    assert 9.0 == values(collect(meter.read())["pfl_bytes"], "_total")["down", "calls"]
