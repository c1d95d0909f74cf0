"""Numbers declared as data become what Prometheus reads, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pfl_common.metric import Number, Summed, fill, fill_choice

BYTES = Number("pfl_bytes", "counter", "Bytes that crossed.", ("direction", "kind"))
ROUND = Number("pfl_round", "gauge", "Round under way.")
STATE = Number("pfl_run_state", "gauge", "One of them is 1.", ("state",))
PHASES = Number("pfl_phase_seconds", "summary", "Time in a phase.", ("phase",))
RUN = Number("pfl_run", "info", "The run that is served.", ("run", "method"))


class Given(Collector):
    """Exposes what it was given."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        """All of it."""
        return self._metrics


def exposed(*metrics: Metric) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a strict reader finds on the page."""
    registry = CollectorRegistry()
    registry.register(Given(metrics))
    page = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_each_kind_is_exposed_as_openmetrics_wants_it() -> None:
    """A counter gets its suffix, a summary its two samples, an info its labels."""
    found = exposed(
        fill(BYTES, {("up", "train"): 3, ("down", "train"): 12}),
        fill(ROUND, {(): 4}),
        fill(PHASES, {("seal",): Summed(2, 1.5)}),
        fill(RUN, {("r1", "dualfed"): 1}),
    )
    assert {
        ("pfl_bytes_total", (("direction", "down"), ("kind", "train"))): 12,
        ("pfl_bytes_total", (("direction", "up"), ("kind", "train"))): 3,
        ("pfl_round", ()): 4,
        ("pfl_phase_seconds_count", (("phase", "seal"),)): 2,
        ("pfl_phase_seconds_sum", (("phase", "seal"),)): 1.5,
        ("pfl_run_info", (("method", "dualfed"), ("run", "r1"))): 1,
    } == found


def test_of_several_states_exactly_one_holds() -> None:
    """The one that holds is 1, all others are there with 0."""
    found = exposed(fill_choice(STATE, ("running", "finished"), "finished"))
    assert {"running": 0, "finished": 1} == {labels[0][1]: value for (_, labels), value in found.items()}


def test_what_is_not_known_is_not_exposed() -> None:
    """A number without a value leaves no sample behind."""
    assert {} == exposed(fill(ROUND, {}), fill(BYTES, {}))


def test_a_summary_adds_up() -> None:
    """Each time counts once, with all it took."""
    spent = Summed()
    spent.add(0.5)
    spent.add(1.0)
    assert Summed(2, 1.5) == spent


@pytest.mark.parametrize(
    ("number", "values", "error"),
    [
        (BYTES, {("up",): 1.0}, ValueError),
        (ROUND, {("up",): 1.0}, ValueError),
        (PHASES, {("seal",): 1.0}, TypeError),
        (ROUND, {(): Summed(1, 1.0)}, TypeError),
    ],
)
def test_what_was_declared_otherwise_is_no_number(
    number: Number, values: dict[tuple[str, ...], float | Summed], error: type[Exception]
) -> None:
    """Other labels than the declared ones, or a value of another kind, are a mistake of ours."""
    with pytest.raises(error, match=number.name):
        fill(number, values)
