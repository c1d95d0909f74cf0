"""A real Prometheus and a real Alertmanager on free ports, with the files that come with the product."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deploy.support.tools import tool
from tests.deploy.support.watching import PROMETHEUS

Series = list[tuple[dict[str, str], list[float]]]


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Observatory:
    """Prometheus with our rules and Alertmanager behind it; everything every second, no alert waits."""

    def __init__(self, folder: Path) -> None:
        self._programs = (
            tool("prometheus", "prometheus"),
            tool("prometheus-alertmanager", "prometheus-alertmanager"),
        )
        self._folder, self._running = folder, list[subprocess.Popen[bytes]]()
        self.began = time.time()
        self.url, self.alertmanager = (f"http://127.0.0.1:{free_port()}" for _ in range(2))

    def start(self, *, coordinators: list[int], sites: list[int]) -> None:
        """Lay out the files with these ports, then start both programs and wait until they answer."""
        shutil.copytree(PROMETHEUS, self._folder / "etc")
        self._hasten()
        self._point("coordinators", coordinators)
        self._point("sites", sites)
        self._point("alertmanagers", [int(self.alertmanager.rpartition(":")[2])])
        prometheus, alertmanager = self._programs
        here, etc = self._folder, self._folder / "etc"
        self._run(
            alertmanager,
            f"--config.file={etc / 'alertmanager.yaml'}",
            f"--storage.path={here / 'alerts'}",
            f"--web.listen-address={self.alertmanager[7:]}",
            "--cluster.listen-address=",
        )
        self._run(
            prometheus,
            f"--config.file={etc / 'prometheus.yaml'}",
            f"--storage.tsdb.path={here / 'series'}",
            f"--web.listen-address={self.url[7:]}",
        )
        for url in (self.url, self.alertmanager):
            wait_for(lambda url=url: self._ready(url), lambda url=url: f"{url} to be ready", seconds=30)

    def ask(self, expr: str, *, once: bool = True) -> Series:
        """What a query gives: now, or as a panel draws it since we began, without what is not a number."""
        given: dict[str, str] = {"query": expr}
        if not once:
            given |= {"start": str(self.began), "end": str(time.time()), "step": "1"}
        found = self._fetch("query" if once else "query_range", given)["data"]["result"]
        lines = [(one["metric"], one["values"] if "values" in one else [one["value"]]) for one in found]
        made = [(labels, [float(value) for _, value in points]) for labels, points in lines]
        finite = [(labels, [value for value in values if math.isfinite(value)]) for labels, values in made]
        return [(labels, values) for labels, values in finite if values]

    def values(self, label: str, series: str) -> set[str]:
        """The values of a label on some series, as Grafana asks for a choice; none, if there are no such ones."""
        given = {"match[]": series, "start": str(self.began), "end": str(time.time())}
        return set(self._fetch(f"label/{label}/values", given)["data"])

    def names(self) -> set[str]:
        """Every number Prometheus has seen."""
        return set(self._fetch("label/__name__/values", {})["data"])

    def told(self) -> dict[str, str]:
        """The alerts that have come to Alertmanager, by name, and whether each is active or suppressed."""
        with urllib.request.urlopen(f"{self.alertmanager}/api/v2/alerts", timeout=10) as page:
            return {one["labels"]["alertname"]: one["status"]["state"] for one in json.load(page)}

    def end(self) -> None:
        """Stop what was started here, by its id."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def _hasten(self) -> None:
        # What is shortened for the test: how often is looked, how long an alert waits before it is told.
        etc = self._folder / "etc"
        for name, before, after in (
            ("prometheus.yaml", r"_interval: 15s", "_interval: 1s"),
            ("rules/pfl.alerts.yaml", r"for: \w+", "for: 1s"),
            ("alertmanager.yaml", r"group_wait: \w+", "group_wait: 0s"),
        ):
            text, count = re.subn(before, after, (etc / name).read_text())
            assert count, name
            (etc / name).write_text(text)

    def _point(self, name: str, ports: list[int]) -> None:
        addresses = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
        (self._folder / "etc" / "targets" / f"{name}.yaml").write_text(f"- targets: [{addresses}]\n")

    def _run(self, *command: str) -> None:
        with (self._folder / f"{Path(command[0]).name}.log").open("wb") as out:
            self._running.append(subprocess.Popen(command, stdout=out, stderr=out, cwd=self._folder))

    def _ready(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as page:
                return page.status == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def _fetch(self, what: str, given: dict[str, str]) -> dict[str, Any]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(given)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as page:
                return json.load(page)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{given}: {error.read().decode()}") from None


def wait_for(event: Callable[[], object], words: Callable[[], str], *, seconds: float) -> None:
    """Wait until something is so, with a deadline."""
    end = time.monotonic() + seconds
    while not event():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain for {words()}"
        # Not a synchronisation: the loop waits for the event and asserts on its own deadline.
        threading.Event().wait(0.2)
