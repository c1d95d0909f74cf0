"""One measurement of a peer over slow lines, as the first process of a corner of the machine that is all its own.

Started as `python -m tests.benchmarks.slow_links.peer_inside ORDER`; writes `result.json` there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.peers.gauges import Gauges
from tests.benchmarks.peers.inside import carry_out, read_order
from tests.benchmarks.peers.namespace import raise_loopback
from tests.benchmarks.slow_links.lines import Kind, Lines
from tests.benchmarks.transport.observing import read_carried

NAMES = Path("/run/netns")


def main(words: list[str]) -> None:
    """Make the lines, then carry out the order with each site behind one of them."""
    file = Path(words[0])
    order, told = read_order(file), json.loads(file.read_text(encoding="utf-8"))
    raise_loopback()
    keep_names_here()
    kind = Kind(told["rate"], told["round_trip"])
    with Lines(kind, order.case.sites) as lines:
        carry_out(order, Gauges(read_carried), lines.at)


def keep_names_here() -> None:
    """The names of namespaces are files: in a file system of this corner's own they are gone with it."""
    NAMES.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "names", str(NAMES)], check=True, timeout=10)


if __name__ == "__main__":
    main(sys.argv[1:])
