"""Measure what it costs to be watched: `python -m tests.benchmarks.scraping [--scrapes 500]`.

A real coordinator and two real sites that have trained, asked for their numbers over one line as Prometheus does.
Processor time is the processes' own, so it does not depend on what else the machine does as seconds would.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.deploy.support.processes import Machine, write_site

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FIRST = 20
"""Scrapes that are left out: whatever is done once is done in them."""


@dataclass(frozen=True)
class Cost:
    """What one scrape takes."""

    program: str
    cpu_milliseconds: float
    answer_milliseconds: float
    bytes: int


def main() -> int:
    """Train a little, ask often, print what it took."""
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.scraping")
    words.add_argument("--scrapes", type=int, default=500, help="how often each program is asked; 500")
    scrapes = words.parse_args().scrapes
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder) / "machine")
        try:
            costs = measure(machine, Path(folder), scrapes)
        finally:
            machine.end_all()
    sys.stdout.write(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n")
    return 0


def measure(machine: Machine, folder: Path, scrapes: int) -> list[Cost]:
    """The coordinator's cost and a site's."""
    server = machine.server("--method", "fedavg", "--backbone", "mlp", "--rounds", "3")
    found = machine.discovery()
    assert found is not None
    sites = [
        machine.client(write_site(folder / name, samples=12, seed=place), "--stay")
        for place, name in enumerate(("hospital_a", "hospital_b"))
    ]
    status = found["http"] + "/status.json"
    machine.wait_for(lambda: "finished" == json.loads(machine.read(status))["status"], server, "server")
    place = re.search(r"metrics=(http://\S+)/metrics", machine.said("hospital_a"))
    assert place is not None
    asked = (("pfl-server", found["http"], server.pid), ("pfl-client", place[1], sites[0].pid))
    return [scrape(program, address, pid=pid, times=scrapes) for program, address, pid in asked]


def scrape(program: str, address: str, *, pid: int, times: int) -> Cost:
    """Ask over one connection, each time when the answer has come."""
    line = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    for _ in range(FIRST):
        _ask(line)
    before, seconds, size = _processor(pid), [], 0
    for _ in range(times):
        began = time.perf_counter()
        size = _ask(line)
        seconds.append(time.perf_counter() - began)
    spent = _processor(pid) - before
    line.close()
    return Cost(program, round(1e3 * spent / times, 3), round(1e3 * statistics.median(seconds), 3), size)


def _ask(line: http.client.HTTPConnection) -> int:
    line.request("GET", "/metrics", headers={"Accept": OPENMETRICS})
    return len(line.getresponse().read())


def _processor(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
