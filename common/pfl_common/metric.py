"""Numbers for Prometheus, declared as data: nothing else is exposed, and the table of metrics is made from them.

Torch-free. `pfl_server.status.exporter.NUMBERS` and `pfl_client.daemon.exporter.NUMBERS` are the two lists; each
program fills them in when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric


@dataclass(frozen=True)
class Number:
    """One number: its name without `_total`, its meaning, and the possible values of its labels."""

    name: str
    kind: Literal["counter", "gauge", "summary", "info"]
    words: str
    labels: tuple[str, ...] = ()
    values: str = ""


@dataclass
class Summed:
    """A count of events and the sum of their values, as a Prometheus summary shows them."""

    count: int = 0
    total: float = 0.0

    def add(self, amount: float) -> None:
        """Once more."""
        self.count += 1
        self.total += amount


Value: TypeAlias = float | Summed


def fill(number: Number, values: Mapping[tuple[str, ...], Value]) -> Metric:
    """A number as it is exposed: by the values of its labels, in the order they are declared in; () without labels."""
    for labels in values:
        if len(labels) != len(number.labels):
            raise ValueError(f"{number.name} with labels {labels!r}; expected: {number.labels!r}")
    if number.kind == "summary":
        return _summary(number, values)
    if number.kind == "info":
        return _info(number, values)
    family = CounterMetricFamily if number.kind == "counter" else GaugeMetricFamily
    metric = family(number.name, number.words, labels=number.labels)
    for labels, value in sorted(values.items(), key=_labels):
        metric.add_metric(labels, _plain(number, value))
    return metric


def fill_choice(number: Number, names: Iterable[str], chosen: str) -> Metric:
    """A number with one label of which exactly one value holds: 1 there, 0 elsewhere."""
    return fill(number, {(name,): float(name == chosen) for name in names})


def _summary(number: Number, values: Mapping[tuple[str, ...], Value]) -> Metric:
    metric = SummaryMetricFamily(number.name, number.words, labels=number.labels)
    for labels, value in sorted(values.items(), key=_labels):
        if not isinstance(value, Summed):
            raise TypeError(f"{number.name} is {value!r}; expected: Summed, since it is a summary")
        metric.add_metric(labels, value.count, value.total)
    return metric


def _info(number: Number, values: Mapping[tuple[str, ...], Value]) -> Metric:
    metric = InfoMetricFamily(number.name, number.words)
    for labels in sorted(values):
        metric.add_metric([], dict(zip(number.labels, labels, strict=True)))
    return metric


def _plain(number: Number, value: Value) -> float:
    if isinstance(value, Summed):
        raise TypeError(f"{number.name} is {value!r}; expected: a plain number, since it is a {number.kind}")
    return value


def _labels(entry: tuple[tuple[str, ...], Value]) -> tuple[str, ...]:
    return entry[0]
