"""Tests mirror the rooms: who looks for a module's tests finds them by its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePath

import pytest

from tests.house import survey
from tests.house.skeleton import PACKAGES, TOP

ASIDE = frozenset({"conformance", "scenarios", "support"})
"""Folders of tests for more than one module, and of what tests are played with."""
NOT_MIRRORED = frozenset(
    {
        "benchmarks",
        "containers_built",
        "containers_read",
        "fuzz",
        "hostile",
        "house",
        "kubernetes_manifests",
        "kubernetes_server",
        "network",
    }
)
"""Folders of tests for what is no module of ours: images, manifests, the line between the programs."""

NETWORK = "a network's layers, written down: built by name and trained"
PANELS = "panels as plain data: every query and unit is looked through"
PROGRAMS = "starts the programs of the demo and follows them: played as a whole"
PAGE = "a part of the page, put together of text: read as its readers see it"
SHOWN_WHOLE = {
    "client/pfl_client/trainer/__main__.py": (
        "one call of the loop",
        "client/trainer_process/test_process.py",
    ),
    "common/pfl_common/models/backbone.py": (NETWORK, "common/models/scenarios/test_backbones.py"),
    "common/pfl_common/models/convolutional.py": (NETWORK, "common/models/scenarios/test_backbones.py"),
    "common/pfl_common/models/perceptron.py": (NETWORK, "common/models/scenarios/test_backbones.py"),
    "common/pfl_common/models/resnet.py": (NETWORK, "common/models/scenarios/test_backbones.py"),
    "deploy/pfl_deploy/demo/baselines.py": (PROGRAMS, "deploy/demo/scenarios/test_demo.py"),
    "deploy/pfl_deploy/monitoring/dashboards/__main__.py": (
        "one call of `write_all`",
        "deploy/monitoring/test_dashboards.py",
    ),
    "deploy/pfl_deploy/monitoring/dashboards/comparison.py": (PANELS, "deploy/monitoring/test_dashboards.py"),
    "deploy/pfl_deploy/monitoring/dashboards/federation.py": (PANELS, "deploy/monitoring/test_dashboards.py"),
    "deploy/pfl_deploy/monitoring/dashboards/site.py": (PANELS, "deploy/monitoring/test_dashboards.py"),
    "deploy/pfl_deploy/monitoring/dashboards/upkeep.py": (PANELS, "deploy/monitoring/test_dashboards.py"),
    "deploy/pfl_deploy/report/charts/png.py": (PAGE, "deploy/report/scenarios/test_report.py"),
    "deploy/pfl_deploy/report/page/costs.py": (PAGE, "deploy/report/scenarios/test_report.py"),
    "deploy/pfl_deploy/report/page/method.py": (PAGE, "deploy/report/scenarios/test_report_method.py"),
    "deploy/pfl_deploy/report/page/page.py": (PAGE, "deploy/report/scenarios/test_report.py"),
}
"""Modules that no test imports: why not, and the test under `tests` that shows them with others."""


def module_of(test: PurePath) -> PurePath:
    """The module that a test file is named after."""
    room, *folders = test.parts[1:-1]
    package = next(name for name, place in PACKAGES.items() if place == room)
    return PurePath(room, package, *folders, test.name.removeprefix("test_"))


def is_named_after_a_module(test: PurePath, modules: set[PurePath]) -> bool:
    """Whether there is such a module, or such a folder."""
    module = module_of(test)
    return module in modules or module.with_suffix("") / "__init__.py" in modules


def list_mirrored() -> list[PurePath]:
    """Test files that are to be named after a module."""
    return [
        path
        for path in survey.list_files()
        if path.parts[0] == "tests"
        and path.name.startswith("test_")
        and len(path.parts) > 2
        and not (ASIDE | NOT_MIRRORED) & set(path.parts)
    ]


def test_a_test_file_is_named_after_its_module() -> None:
    """`tests/server/store/test_journal.py` is about `server/pfl_server/store/journal.py`."""
    modules = set(survey.list_modules())
    assert [] == [str(path) for path in list_mirrored() if not is_named_after_a_module(path, modules)]


@pytest.mark.parametrize("path", ["tests/server/store/test_attic.py", "tests/client/test_attic.py"])
def test_a_test_of_no_module_is_seen(path: str) -> None:
    """The check above is able to fail."""
    assert not is_named_after_a_module(PurePath(path), set(survey.list_modules()))


def name_imports(text: str) -> set[str]:
    """Modules a test imports, itself or in a program that it writes and runs."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in re.findall(r"from (pfl_[\w.]+) import ([\w, ]+)", node.value):
                found |= {module, *(f"{module}.{name.strip()}" for name in names.split(","))}
            found |= set(re.findall(r"import (pfl_[\w.]+)", node.value))
    return found


def has_code(text: str) -> bool:
    """Whether a module says more than what it is about."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(text).body)


def list_lonely(modules: list[PurePath], imported: set[str], mirrored: set[PurePath]) -> set[str]:
    """Modules with code that no test imports and none is named after: one that is sees them through their folder's
    own names.
    """
    return {
        str(path)
        for path in modules
        if ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__") not in imported
        and path not in mirrored
        and has_code(survey.read(path))
    }


def test_every_module_is_met_by_a_test() -> None:
    """A reader who changes a module finds a test that shows its own rules; the exceptions are listed."""
    tests = [path for path in survey.list_files() if path.parts[0] == "tests" and path.suffix == ".py"]
    imported = set().union(
        *(name_imports(survey.read(path)) for path in tests if "benchmarks" not in path.parts)
    )
    mirrored = {module_of(path) for path in list_mirrored()}
    assert set(SHOWN_WHOLE) == list_lonely(survey.list_modules(), imported, mirrored)


def test_what_is_shown_with_others_is_shown() -> None:
    """The tests that are named for modules without one of their own are there."""
    assert [] == [shown for _, shown in SHOWN_WHOLE.values() if not Path(TOP, "tests", shown).is_file()]


def test_a_module_without_a_test_is_seen() -> None:
    """The check above is able to fail: a module is met by its name, by its folder's, or in a program's text."""
    fleet = PurePath("server/pfl_server/sites/fleet.py")
    assert {str(fleet)} == list_lonely([fleet], name_imports("import pfl_server.sites"), set())
    for text in (
        "from pfl_server.sites import fleet",
        "from pfl_server.sites.fleet import Fleet",
        "PROGRAM = 'import time; from pfl_server.sites import uploads, fleet'",
    ):
        assert set() == list_lonely([fleet], name_imports(text), set())
    assert set() == list_lonely([fleet], set(), {fleet})
