"""Tests mirror the rooms: who looks for a module's tests finds them by its name."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tests.house import survey
from tests.house.skeleton import PACKAGES

ASIDE = frozenset({"conformance", "scenarios", "support"})
"""Folders of tests for more than one module, and of what tests are played with."""
NOT_MIRRORED = frozenset(
    {
        "benchmarks",
        "containers_built",
        "containers_read",
        "house",
        "kubernetes_manifests",
        "kubernetes_server",
        "network",
    }
)
"""Folders of tests for what is no module of ours: images, manifests, the line between the programs."""


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
