"""A fuzz target: a function that takes any bytes and may end in no other error than those it names.

    @target("name", DataError, seeds=lambda: [b"..."])
    def name(content: bytes) -> None: ...

A seed is content that is taken as it is: mutations of it get past the first checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from tempfile import TemporaryDirectory
from typing import TypeAlias

from tests.fuzz.bounds import bounded, ends_in

CRASHES = Path(__file__).parent / "crashes"
"""What once ended a target otherwise, as TARGET-WORDS; each is tried in the ordinary tests."""

Run: TypeAlias = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """One reader of bytes that come from elsewhere."""

    name: str
    run: Run
    allowed: tuple[type[BaseException], ...]
    make_seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()
    """Words of its format, which a mutation may put anywhere."""

    @cached_property
    def seeds(self) -> list[bytes]:
        """Contents that are taken."""
        return self.make_seeds()

    def __call__(self, content: bytes) -> None:
        """Read it; any error but those that are named is a finding, and so is what it costs."""
        with bounded(len(content)), ends_in(*self.allowed):
            self.run(content)

    def crashes(self) -> dict[str, bytes]:
        """What once crashed it, by file name."""
        return {path.name: path.read_bytes() for path in sorted(CRASHES.glob(f"{self.name}-*"))}


_FOUND: dict[str, Target] = {}


def target(
    name: str,
    *allowed: type[BaseException],
    seeds: Callable[[], list[bytes]],
    words: tuple[bytes, ...] = (),
) -> Callable[[Run], Run]:
    """Declare a target; `allowed` are the errors that its reader is documented to raise."""

    def declare(run: Run) -> Run:
        _FOUND[name] = Target(name, run, allowed, seeds, words)
        return run

    return declare


def load_all() -> dict[str, Target]:
    """All targets by name."""
    from tests.fuzz import targets

    for module in iter_modules(targets.__path__):
        import_module(f"{targets.__name__}.{module.name}")
    return dict(sorted(_FOUND.items()))


_PLACE = TemporaryDirectory(prefix="pfl-fuzz-")


def as_file(content: bytes, name: str) -> Path:
    """The content as a file, written over by the next one of its name."""
    path = Path(_PLACE.name) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
