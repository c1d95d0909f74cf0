"""What one input may cost, and what the answer to it has to be: an error in words, soon, in little memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pfl_common.errors import Refused, UserError

SLOW_SECONDS = 5.0
"""An input of a few kilobytes that takes so long is a finding too."""
LARGE_BYTES = 512 << 20
"""So is one for which so much memory is taken: a bound of our own, far below that of any machine."""
LONGEST_WORDS = 20_000
"""Letters of an error: what is quoted of an input is cut."""

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@contextmanager
def bounded(size: int) -> Iterator[None]:
    """While open, an input of this size is read."""
    began, before = time.monotonic(), _begin_peak()
    yield
    took, taken = time.monotonic() - began, _read_status("VmHWM") - before
    assert took < SLOW_SECONDS, f"{size} bytes took {took:.1f} s"
    assert taken < LARGE_BYTES, f"{size} bytes took {taken >> 20} MiB of memory"


@contextmanager
def ends_in(*allowed: type[BaseException]) -> Iterator[None]:
    """While open, these errors may end it, if a person can read what they say; afterwards it goes on."""
    try:
        yield
    except allowed as error:
        check_words(error)


def check_words(error: BaseException) -> None:
    """An error of ours says something, and not without end."""
    if isinstance(error, UserError | Refused):
        said = str(error)
        assert said.strip(), f"{type(error).__name__} without words"
        assert len(said) <= LONGEST_WORDS, f"{type(error).__name__} of {len(said)} letters"


def _begin_peak() -> int:
    """Let the peak begin anew where that is possible (Linux); gives the memory that is held now."""
    with suppress(OSError):
        _RESET.write_text("5")
    return _read_status("VmHWM")


def _read_status(name: str) -> int:
    """Bytes, as the system counts them; 0 where it does not."""
    with suppress(OSError):
        lines = _STATUS.read_text().splitlines()
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 0)
    return 0
