"""A federation of real processes on a network of its own, whose loopback interface counts its bytes and no others.

`python -m tests.deploy.support.counting FOLDER` plays it there and writes what was counted as JSON, `FOLDER killed` one
whose coordinator dies on the way, `FOLDER small` one in which nothing large crosses; exit code 77 where the system
gives us no such network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.benchmarks.transport import network
from tests.deploy.support.processes import Machine, write_site

NO_NETWORK = 77
SMALL_ROUNDS = 30
NAMES = ("hospital_a", "hospital_b")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Counts = dict[str, float]


def read_counts(page: str, name: str) -> Counts:
    """A counter's samples, by its labels joined with a slash, as a strict reader finds them."""
    return {
        "/".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    }


def crossed() -> int:
    """Bytes that the loopback interface has carried: what it sends it also receives."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (fields,) = (line.split() for line in lines if line.strip().startswith("lo:"))
    return int(fields[1])


class Counting:
    """The federation and its counters."""

    def __init__(self, home: Path) -> None:
        self.machine = Machine(home)
        for seed, name in enumerate(NAMES):
            write_site(home / name, samples=24, size=32, seed=seed)

    def play(self) -> dict[str, object]:
        """Two rounds; everybody's counters while both sites train in the second one, the coordinator's at the end."""
        machine = self.machine
        # A model of 5 MB, and some seconds of training in which nothing but heartbeats crosses.
        words = ("--method", "fedavg", "--backbone", "resnet8", "--rounds", "2", "--quorum", "1")
        server = machine.server(*words, "--set", "epochs=60", "--lease-seconds", "60")
        sites = [machine.client(machine.home / name) for name in NAMES]
        begun = "kind=train round=2"
        machine.wait_for(lambda: all(begun in machine.said(name) for name in NAMES), server, "server")
        machine.wait_for(lambda: self._phases()["download"] == 4, server, "server")
        between = {"interface": crossed(), "coordinator": self._bytes(), "sites": self._bytes_of_sites()}
        uploads = self._phases()["upload"]
        ended = [machine.finish(site, log=name) for site, name in zip(sites, NAMES, strict=True)]
        last = {"interface": crossed(), "coordinator": self._bytes()}
        told = [json.loads(text) for text in (self._read("status.json"), self._ask_status())]
        spent = read_counts(self._page(), "pfl_round_seconds_sum")
        machine.stop(server)
        seen = {"seconds": spent, "tasks": [self._tasks(name) for name in NAMES]}
        return {"ended": ended, "uploads": uploads, "between": between, "last": last, "told": told, **seen}

    def play_killed(self) -> dict[str, object]:
        """Three rounds; the coordinator is killed while both sites train in the second one, and the whole run is served
        once more when it is over.
        """
        machine = self.machine
        words = ("--method", "fedavg", "--backbone", "resnet8", "--rounds", "3", "--quorum", "1")
        words = (*words, "--set", "epochs=60", "--lease-seconds", "60")
        server = machine.server(*words)
        sites = [machine.client(machine.home / name) for name in NAMES]
        begun = "kind=train round=2"
        machine.wait_for(lambda: all(begun in machine.said(name) for name in NAMES), server, "server")
        machine.wait_for(lambda: self._phases()["download"] == 4, server, "server")
        killed = {"interface": crossed(), "coordinator": self._bytes()}
        opened = json.loads(self._read("status.json"))["opened"]
        found = machine.discovery()
        assert found is not None
        port = ("--port", found["control"].rpartition(":")[2])
        server.kill()
        server.wait(10)
        server = self._serve_again(*words, *port)
        at_once = self._bytes()
        ended = [machine.finish(site, log=name) for site, name in zip(sites, NAMES, strict=True)]
        last = {
            "interface": crossed(),
            "coordinator": self._bytes(),
            "told": json.loads(self._read("status.json")),
        }
        machine.stop(server)
        server = self._serve_again(*words, *port)
        again = {"coordinator": self._bytes(), "told": json.loads(self._read("status.json"))}
        machine.stop(server)
        return {
            "ended": ended,
            "killed": killed,
            "opened": opened,
            "at_once": at_once,
            "last": last,
            "again": again,
        }

    def play_small(self) -> dict[str, object]:
        """Prototypes alone cross: two readings with many rounds between them, in which nobody else says anything."""
        machine, log = self.machine, "server"
        words = ("--method", "fedproto", "--backbone", "mlp", "--quorum", "1")
        server = machine.server(*words, "--rounds", str(SMALL_ROUNDS), "--durability", "process")
        sites = [machine.client(machine.home / name) for name in NAMES]
        machine.wait_for(lambda: "round closed" in machine.said(log), server, log)
        first = {"closed": self._closed(), "coordinator": self._bytes(), "interface": crossed()}
        for site, name in zip(sites, NAMES, strict=True):
            machine.finish(site, log=name)
        last = {"interface": crossed(), "closed": self._closed(), "coordinator": self._bytes()}
        machine.stop(server)
        return {"first": first, "last": last}

    def _tasks(self, name: str) -> list[float]:
        """When a site was given each of its tasks, by its own clock (Unix times)."""
        lines = [
            line for line in self.machine.said(name).splitlines() if " task " in line and "kind=" in line
        ]
        return [datetime.fromisoformat(line.split()[0]).timestamp() for line in lines]

    def _closed(self) -> int:
        return self.machine.said("server").count("round closed")

    def _serve_again(self, *words: str) -> subprocess.Popen[bytes]:
        """The same command once more, when it has read its books."""
        machine = self.machine
        server = machine.server(*words)
        machine.wait_for(lambda: "run " in machine.said("server"), server, "server")
        machine.wait_for(lambda: "pfl_rounds_total" in self._page(), server, "server")
        return server

    def _bytes(self) -> Counts:
        return read_counts(self._page(), "pfl_bytes_total")

    def _phases(self) -> Counts:
        return read_counts(self._page(), "pfl_phase_seconds_count")

    def _page(self) -> str:
        return self._read("metrics")

    def _read(self, page: str) -> str:
        found = self.machine.discovery()
        assert found is not None
        return self.machine.read(f"{found['http']}/{page}", accept=OPENMETRICS)

    def _ask_status(self) -> str:
        return self.machine.call("pfl", "status", "--json").stdout

    def _bytes_of_sites(self) -> list[Counts]:
        pages = [self.machine.said(name).partition("metrics=")[2].split()[0] for name in NAMES]
        return [
            read_counts(self.machine.read(page, accept=OPENMETRICS), "pfl_site_bytes_total") for page in pages
        ]


def main(folder: str, fate: str = "") -> int:
    """Play it in a network of its own."""
    if not network.enter("tests.deploy.support.counting", [folder, fate]):
        return NO_NETWORK
    counting = Counting(Path(folder))
    try:
        play = {"": counting.play, "killed": counting.play_killed, "small": counting.play_small}[fate]
        sys.stdout.write(json.dumps(play()))
    finally:
        counting.machine.end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
