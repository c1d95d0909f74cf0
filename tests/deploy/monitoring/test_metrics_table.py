"""The table of metrics says what the code declares."""

from __future__ import annotations

from pathlib import Path

from pfl_client.daemon import exporter as site
from pfl_deploy.monitoring.metrics_table import render
from pfl_server.status import exporter as coordinator

TABLE = Path(__file__).parents[3] / "deploy" / "prometheus" / "metrics.md"


def test_the_table_is_what_the_code_declares() -> None:
    """After a change: python -m pfl_deploy.monitoring.metrics_table > deploy/prometheus/metrics.md."""
    assert render() == TABLE.read_text()


def test_each_number_has_one_place_and_one_sentence() -> None:
    """No name twice, units and suffixes in the names, and words that say what it is."""
    numbers = (*coordinator.NUMBERS, *site.NUMBERS)
    assert len(numbers) == len({number.name for number in numbers})
    for number in numbers:
        assert number.name.startswith("pfl_site" if number in site.NUMBERS else "pfl_"), number.name
        assert not number.name.endswith(("_total", "_info", "_count", "_sum")), number.name
        assert number.words.endswith("."), number.name
        assert number.labels or not number.values, number.name
