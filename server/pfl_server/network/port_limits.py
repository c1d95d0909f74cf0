"""How many connections each port takes.

So many that all sites fit, and so few that files can still be opened: whoever can reach a port can open connections to
it, without a certificate or a single byte. Each costs a descriptor, and a program without one left can neither write
its journal nor answer those whom it knows.
"""

from __future__ import annotations

from dataclasses import dataclass

FILES = 128
"""Descriptors for everything else: journal, spool, checkpoints, threads' pipes, and what libraries open."""
LINES_PER_SITE = 3
"""One, a second while a certificate is renewed or after a break that only the site has noticed, and one to spare."""
FEWEST_LINES = 1200
"""A thousand sites that are invited one by one after the start fit too."""
MOST_ENROLLING = 256
MOST_READERS = 64
"""Of the status page: browsers, Prometheus, probes."""
SHARE_ENROLLING, SHARE_READERS = 8, 16
"""Where descriptors are few, these ports get this part of them: one in so many."""


@dataclass(frozen=True)
class PortLimits:
    """Connections that are open at once."""

    sites: int = FEWEST_LINES
    enrolling: int = MOST_ENROLLING
    readers: int = MOST_READERS


def share_out(descriptors: int, sites: int) -> PortLimits:
    """Divide a process's descriptors between its ports, for a federation of so many sites."""
    spare = max(0, descriptors - FILES)
    enrolling = min(MOST_ENROLLING, max(1, spare // SHARE_ENROLLING))
    readers = min(MOST_READERS, max(1, spare // SHARE_READERS))
    wanted = max(FEWEST_LINES, LINES_PER_SITE * sites)
    # Whoever calls may have a file open too: the one that it fetches or hands in.
    lines = min(wanted, max(1, (spare - enrolling - readers) // 2))
    return PortLimits(lines, enrolling, readers)
