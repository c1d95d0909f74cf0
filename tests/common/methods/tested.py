"""What tests know of each method, for the table of methods: worked examples that hold, distance from its oracle.

    python -m tests.common.methods.tested

runs the tests that are marked as worked examples and every method beside its oracle (minutes; `--examples` runs the
examples alone), and writes `deploy/methods/tested.json`; `python -m pfl_deploy.reference.method_pages` puts it into
the pages.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # a session of pytest

import pytest

from pfl_common import methods
from pfl_server.method_help.costs import NETWORKS
from tests.common.methods.conformance.cases import FOUND, FURTHER
from tests.common.methods.conformance.differences import measure
from tests.common.methods.golden import find_marked
from tests.common.methods.predicted import PREDICTED, SIZES

FILE = Path(__file__).parents[3] / "deploy" / "methods" / "tested.json"


class Counted:
    """Counts, while pytest runs, the cases of marked tests by method: all, and those that hold."""

    def __init__(self) -> None:
        self.marked, self.passed = Counter[str](), Counter[str]()
        self._whose: dict[str, tuple[str, ...]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Every case of a parametrised test is one, also one that is marked for several methods or examples."""
        for item in items:
            methods_of = sorted({name for mark in item.iter_markers("golden") for name in mark.args})
            self._whose[item.nodeid] = tuple(methods_of)
            self.marked.update(methods_of)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A case holds when its own part has passed."""
        if report.when == "call" and report.passed:
            self.passed.update(self._whose.get(report.nodeid, ()))


def count_examples() -> Counted:
    """Run all marked tests."""
    counted: Any = Counted()
    files = sorted({str(marked.file) for marked in find_marked()})
    if files:
        pytest.main(["-q", "-m", "golden", "-p", "no:cacheprovider", *files], plugins=[counted])
    return counted


def find_items() -> dict[str, list[int]]:
    """The numbers of each method's worked examples, read from the tests' text."""
    found: dict[str, set[int]] = {}
    for marked in find_marked():
        for name in marked.methods:
            found.setdefault(name, set()).add(marked.item)
    return {name: sorted(items) for name, items in sorted(found.items())}


def measure_differences() -> Mapping[str, float]:
    """The largest difference of each method to its oracle, over all cases of the conformance suite."""
    found: dict[str, float] = {}
    for case in FOUND + FURTHER:
        if case.name in methods.names():
            found[case.name] = max(found.get(case.name, 0.0), measure(case))
    return found


def predict(name: str) -> list[int]:
    """Bytes up and down on the small network."""
    return [round(4 * count(SIZES[NETWORKS[0]])) for count in PREDICTED[name]]


def main(words: list[str]) -> int:
    """Write the file; an example that does not hold is an error. `--examples` leaves the differences as they were."""
    counted, items = count_examples(), find_items()
    differences = _read_differences() if "--examples" in words else measure_differences()
    told = {
        name: {
            "passed": counted.passed[name],
            "marked": counted.marked[name],
            "items": items.get(name, []),
            "difference": differences.get(name),
            "predicted": predict(name),
        }
        for name in methods.names()
    }
    FILE.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    return int(counted.passed != counted.marked)


def _read_differences() -> dict[str, float]:
    plain = json.loads(FILE.read_text())
    return {name: row["difference"] for name, row in plain.items() if row["difference"] is not None}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
