"""Structured inputs: what a target reads, built right but for a few places, by Hypothesis.

    @shape("name")
    def build() -> SearchStrategy[bytes]: ...

The name is that of a target, which reads the bytes that are built. So what is found is a file of bytes, as of any other
engine, and goes on to mean what it meant when the shape is changed.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeAlias  # JSON has no narrower type

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import HypothesisWarning
from hypothesis.strategies import SearchStrategy

from tests.fuzz.target import Target

Shape: TypeAlias = SearchStrategy[bytes]

FEWEST = 5
"""Inputs that a target gets, however slow the machine is."""

_FOUND: dict[str, Callable[[], Shape]] = {}
_SETTINGS = {
    "database": None,
    "deadline": None,
    "print_blob": False,
    "phases": (Phase.generate, Phase.shrink),
    "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}


class Found(Exception):
    """What ended a target otherwise, as small as it could be made; the error itself is its cause."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        super().__init__(f"{content[:2000]!r} of {len(content)} bytes")


def shape(name: str) -> Callable[[Callable[[], Shape]], Callable[[], Shape]]:
    """Declare the shape of a target's inputs."""

    def declare(build: Callable[[], Shape]) -> Callable[[], Shape]:
        _FOUND[name] = build
        return build

    return declare


def load_shapes() -> dict[str, Callable[[], Shape]]:
    """All shapes by the names of their targets."""
    from tests.fuzz import shapes

    for module in iter_modules(shapes.__path__):
        import_module(f"{shapes.__name__}.{module.name}")
    return dict(sorted(_FOUND.items()))


def play(target: Target, build: Callable[[], Shape], *, seed: int, examples: int, seconds: float) -> int:
    """Give a target what is built for it, for so many seconds of the processor: a busy machine gives it as many inputs.
    Found says what it could not take. Gives how many inputs there were.
    """
    count, broken = 0, list[bytes]()
    end = time.process_time() + seconds

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=examples, **_SETTINGS)
    @hypothesis.given(build())
    def give(content: bytes) -> None:
        nonlocal count
        if count >= FEWEST and time.process_time() > end and not broken:
            return
        count += 1
        try:
            target(content)
        except BaseException:
            broken[:] = [content]  # Hypothesis ends with the smallest
            raise

    try:
        with warnings.catch_warnings():
            # It writes out what fails, which may be long, and says that this is no use.
            warnings.simplefilter("ignore", HypothesisWarning)
            give()
    except BaseException as error:
        if not broken:
            raise
        raise Found(broken[0]) from error
    return count


def as_json(value: Any) -> bytes:
    """As JSON, with whatever it holds."""
    return json.dumps(value).encode()
