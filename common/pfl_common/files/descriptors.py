"""How many files and connections this process may have open at once."""

from __future__ import annotations

import resource
from contextlib import suppress

MOST = 1 << 20
"""Beyond it systems refuse, or a number that means "any" is not one that can be set."""
FALLBACK = 10_240
"""What macOS lets a process have where it calls its own limit infinite."""


def raise_limit() -> int:
    """Take as many descriptors as the system lets this process have; gives how many there are now.

    Programs are started with few (1,024 in most shells), for the sake of some that are older than `poll`. Children
    inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_within(hard), min(_within(hard), FALLBACK)):
        if _is_below(soft, wanted):
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                break
    return _within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _within(limit: int) -> int:
    return MOST if limit == resource.RLIM_INFINITY else min(limit, MOST)


def _is_below(soft: int, wanted: int) -> bool:
    return soft != resource.RLIM_INFINITY and soft < wanted
