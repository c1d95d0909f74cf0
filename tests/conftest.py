"""What holds for every test: one thread for torch, a new order each time so that no test leans on another."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# Before anything imports torch, and inherited by every process a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")


# How long one example takes says more of the machine than of the code: the first one may build what all others use.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

_SET = re.compile(r"\{('[^']*'|[\d.]+), ('[^']*'|[\d.]+)")
"""A set of words or numbers, as Python prints it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a session be run again in the same order."""
    parser.addoption("--order", type=int, metavar="SEED", help="repeat the order that a session printed")
    parser.addoption(
        "--long",
        action="store_true",
        help="long forms too: all methods, not one of each kind, and every fault",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settle the order: the one asked for, in a worker process the one handed over, or a new one."""
    if config.option.order is None:
        given: dict[str, int] = getattr(config, "workerinput", {})
        config.option.order = given.get("order", secrets.randbelow(10**6))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Hand the order to a worker process: all of them must collect alike."""
    node.workerinput["order"] = node.config.option.order


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to repeat this order."""
    return f"order of tests: --order {config.option.order}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle files, then tests inside each: a file stays together, so that what it set up serves it all."""

    def rank(words: str) -> bytes:
        return hashlib.sha256(f"{config.option.order} {words}".encode()).digest()

    # Two workers print a set in two orders, and then do not agree on what there is to run.
    if unordered := [item.nodeid for item in items if _SET.search(item.name)]:
        raise pytest.UsageError(f"a set in a test's name: {unordered[0]}; give it ids of its own")
    if not config.option.long:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    items.sort(key=lambda item: (rank(item.nodeid.partition("::")[0]), rank(item.nodeid)))
