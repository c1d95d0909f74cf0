"""A real federation, watched by a real Prometheus and Alertmanager with the files that come with the product.

Two runs of one coordinator, so that there is something to compare: first `local` to its end, then another one in which
a trainer stands still until its attempt is abandoned and what its site sends is refused. Then every panel has something
to draw.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.support.naming import Drawn, find_strays, find_twins
from tests.deploy.support.observatory import Observatory, Series, free_port, wait_for
from tests.deploy.support.processes import Machine, children, write_site
from tests.deploy.support.tools import tool
from tests.deploy.support.watching import (
    DASHBOARDS,
    Asked,
    Choice,
    declared,
    every_choice,
    every_query,
    exposed,
    panels_of,
    recorded,
)

pytestmark = pytest.mark.timeout(300)

SITES = ("hospital_a", "hospital_b")
IN_TROUBLE = {
    "Gain over baselines": "a finished run of `local` or `fedavg` must be there and named: the first run learns little",
    "Updates that did not come": "a site must be lost: one's trainer stands still",
    "Refusals": "a message must be refused: what that site sends comes too late",
    "Refused by the coordinator": "the same, as that site sees it",
    "Tasks not done": "a site must decline one: its trainer dies twice",
    "Trainers lost": "the same",
}
"""Panels that are empty while all is well, and what was done so that they are not."""
GRAFANA_PUTS_IN = {
    "__range": "10m",
    "__interval": "2s",
    "__rate_interval": "8s",
    "window": "2m",
    "target": "0.01",
    "statistic": "macro",
    "site": SITES[1],
}
TOLD = {"PflSitesAway": "active", "PflCoordinatorDown": "active", "PflSiteDisconnected": "suppressed"}
"""What comes to Alertmanager when a site and then the coordinator are killed; the last is only a consequence."""


@dataclass
class Seen:
    """All that was seen before everything was ended: tests look at it in any order."""

    drawn: dict[Asked, Series]
    offered: dict[Choice, set[str]]
    now: dict[str, set[str]]
    names: set[str]
    pages: dict[str, str]
    quiet: dict[str, str]
    told: dict[str, str]

    def labels(self, dashboard: str, panel: str) -> Drawn:
        """Those of all series on a panel."""
        return {
            asked.ref: [labels for labels, _ in series]
            for asked, series in self.drawn.items()
            if (asked.dashboard, asked.panel) == (dashboard, panel)
        }


class Watched:
    """A federation of this machine and those who watch it."""

    def __init__(self, folder: Path) -> None:
        self.machine, self.observatory = Machine(folder / "machine"), Observatory(folder / "observatory")
        self.folders = [
            write_site(folder / "data" / site, samples=count, seed=count)
            for site, count in zip(SITES, (60, 52), strict=True)
        ]
        self._ports = dict(zip(("server", *SITES), (free_port() for _ in range(3)), strict=True))
        self.sites: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Those who watch come first: what a counter shows before they look, they do not know."""
        ports = list(self._ports.values())
        self.observatory.start(coordinators=ports[:1], sites=ports[1:])

    def serve(self, *words: str) -> None:
        """A run, with all its sites."""
        chosen = ("--backbone", "resnet8", "--quorum", "0.9", "--lease-seconds", "3", *words)
        # Two sites of one owner: their means and each one's own series are shown, so that all panels have some.
        chosen += ("--fewest-reporters", "1", "--site-metrics")
        self.server = self.machine.server(*chosen, "--http-port", str(self._ports["server"]))
        self.machine.wait_for(lambda: "listening" in self.machine.said("server"), self.server, "server")
        for data in self.folders:
            self.sites[data.name] = self.machine.client(data, "--http-port", str(self._ports[data.name]))

    def page(self, program: str) -> str:
        """What a program tells of itself, in Prometheus's older format."""
        return self.machine.read(f"http://127.0.0.1:{self._ports[program]}/metrics")

    def wait_until(self, expr: str, *, seconds: float = 60) -> None:
        """Until Prometheus finds something."""
        watched = self.observatory
        wait_for(
            lambda: watched.ask(expr),
            lambda: f"{expr}; the coordinator said:\n{self.said()}",
            seconds=seconds,
        )

    def said(self) -> str:
        """The end of the coordinator's log."""
        return self.machine.said("server")[-3000:]

    def draw(self) -> dict[Asked, Series]:
        """What every panel shows, as soon as all have something to show; or what they show after a while."""
        ((labels, _),) = self.observatory.ask("pfl_run_info")
        puts_in = GRAFANA_PUTS_IN | {"job": ".*", "instance": ".*", "method": ".*"}
        drawn: dict[Asked, Series] = {}

        def all_draw() -> bool:
            for asked in every_query():
                if not drawn.get(asked):
                    run = ".*" if asked.dashboard == "comparison.json" else labels["run"]
                    expr = put_in(asked.expr, puts_in | {"run": run})
                    drawn[asked] = self.observatory.ask(expr, once=asked.once)
            return all(drawn.values())

        with contextlib.suppress(AssertionError):
            wait_for(all_draw, lambda: "all panels", seconds=40)
        return drawn

    def offer(self) -> dict[Choice, set[str]]:
        """What there is to choose for somebody who has chosen nothing yet."""
        puts_in = dict.fromkeys(("job", "instance", "method"), ".*")
        return {
            one: self.observatory.values(one.label, put_in(one.series, puts_in)) for one in every_choice()
        }

    def look_at_now(self) -> dict[str, set[str]]:
        """Whose figures *Federation* shows to somebody who has chosen nothing, by panel."""
        puts_in = GRAFANA_PUTS_IN | {"job": ".*", "instance": ".*", "run": ".*"}
        asked = [one for one in every_query() if one.dashboard == "federation.json" and one.once]
        found = {one.panel: self.observatory.ask(put_in(one.expr, puts_in)) for one in asked}
        return {panel: {labels["run"] for labels, _ in series} for panel, series in found.items()}

    def be_killed(self) -> dict[str, str]:
        """A site first, then the coordinator; gives the alerts that have come of it."""
        found: dict[str, str] = {}

        def has_told(*names: str) -> bool:
            found.update(self.observatory.told())
            return set(names) <= set(found)

        with contextlib.suppress(AssertionError):
            self.sites[SITES[0]].kill()
            wait_for(lambda: has_told("PflSitesAway"), lambda: "an alert", seconds=40)
            self.server.kill()
            wait_for(lambda: has_told(*TOLD) and found == TOLD | found, lambda: "alerts", seconds=40)
        return found

    def end(self) -> None:
        """Everybody's end."""
        self.machine.end_all()
        self.observatory.end()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Two runs, the second with a trainer that stood still for a while; then the worst."""
    watched = Watched(tmp_path_factory.mktemp("watched"))
    try:
        watched.start()
        play_first_run(watched)
        play_second_run(watched)
        # The coordinator looks at its disk every 30 seconds, the first time before there was a run.
        watched.wait_until("pfl_disk_used_bytes and on () pfl_checkpoint_timestamp_seconds")
        drawn, offered, now = watched.draw(), watched.offer(), watched.look_at_now()
        quiet, names = watched.observatory.told(), watched.observatory.names()
        pages = {program: watched.page(program) for program in ("server", *SITES)}
        return Seen(drawn, offered, now, names, pages, quiet, watched.be_killed())
    finally:
        watched.end()


def play_first_run(watched: Watched) -> None:
    """What the second run is compared with, to its end; its numbers are read to the last."""
    watched.serve("--method", "local", "--rounds", "2", "--set", "lr=1e-6")
    assert [0, 0] == [watched.machine.finish(site, log=name) for name, site in watched.sites.items()]
    watched.wait_until('run:pfl_unfinished:bool{method="local"} == 0')
    # Seen by the steps in which a panel looks back, and not only between two of them.
    watched.wait_until('max_over_time(run:pfl_accuracy_ratio:now{method="local"}[1m:2s])')
    assert 0 == watched.machine.stop(watched.server)


def play_second_run(watched: Watched) -> None:
    """A task is declined; a round is abandoned for want of a site that gets no further; then it does, too late."""
    (first,) = (watched.machine.home / "pfl-state" / "runs").glob("local-*")
    # By its name: a run of other rounds and epochs is nothing that is compared by itself.
    words = ("--rounds", "100000", "--set", "epochs=6", "--baseline", first.name)
    watched.serve("--method", "dualfed", *words)
    wait_for_rounds(watched, 2)
    decline(watched, SITES[1])
    wait_for_rounds(watched, 1)
    # A trainer that was ended is started again with its next task.
    site = watched.sites[SITES[1]]
    watched.machine.wait_for(lambda: bool(children(site)), site, SITES[1])
    # Its trainer and not the site: whenever the trainer is stopped, it is this or the next task that gets no further.
    (trainer,) = children(site)
    os.kill(trainer, signal.SIGSTOP)
    try:
        watched.wait_until('pfl_losses_total{reason="lease",stage="working"} >= 1')
    finally:
        os.kill(trainer, signal.SIGCONT)
    watched.wait_until("pfl_site_refused_total")
    wait_for_rounds(watched, 3)


def wait_for_rounds(watched: Watched, more: int) -> None:
    """Until so many rounds more are committed."""
    found = watched.observatory.ask('pfl_rounds_total{outcome="committed"}')
    ((_, (committed,)),) = found or [({}, (0.0,))]
    watched.wait_until(f'pfl_rounds_total{{outcome="committed"}} >= {committed + more}')


def decline(watched: Watched, name: str) -> None:
    """A site's trainer dies whenever it is there, until the site declines a task for it."""
    site, machine = watched.sites[name], watched.machine

    def declines() -> bool:
        for trainer in children(site):
            with contextlib.suppress(ProcessLookupError):
                os.kill(trainer, signal.SIGKILL)
        return "task declined" in machine.said(name)

    machine.wait_for(declines, site, name)
    watched.wait_until("pfl_site_declined_total > 0")


def put_in(expr: str, values: dict[str, str]) -> str:
    """A query as Grafana sends it."""
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


def test_every_panel_has_something_to_draw(seen: Seen) -> None:
    """Each query of each panel gives numbers."""
    assert [] == [asked for asked, series in seen.drawn.items() if not series]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_name_what_they_draw(seen: Seen, name: str) -> None:
    """Labels of legends, axes, columns and the names that something is set for: all are among what was drawn."""
    for panel in panels_of(name):
        assert [] == find_strays(panel, seen.labels(name, panel["title"])), panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_colour_of_its_own_is_no_other_line_s(seen: Seen, name: str) -> None:
    """Where one line has a colour that says something, the palette gives it to no other."""
    for panel in panels_of(name):
        if panel["type"] == "timeseries":
            assert [] == find_twins(panel, seen.labels(name, panel["title"])), panel["title"]


def test_every_choice_has_something_to_choose(seen: Seen) -> None:
    """Each choice above the panels offers what is there: runs, sites, words that are values of a label."""
    assert [] == [one for one, offered in seen.offered.items() if not offered or set(one.words) - offered]
    offered = {(one.dashboard, one.name): values for one, values in seen.offered.items()}
    assert set(SITES) == offered["site.json", "site"]
    assert {"dualfed", "local"} == offered["comparison.json", "method"]


def test_panels_for_trouble_are_panels(seen: Seen) -> None:
    """What is listed as empty while all is well is on a dashboard, and trouble made it draw."""
    drawn: dict[str, float] = {}
    for asked, lines in seen.drawn.items():
        for _, values in lines:
            drawn[asked.panel] = max(drawn.get(asked.panel, 0.0), *values)
    assert set() == set(IN_TROUBLE) - set(drawn)
    assert [] == [panel for panel in IN_TROUBLE if not drawn[panel] > 0]


def test_runs_are_told_apart(seen: Seen) -> None:
    """Two runs of one coordinator are two lines on every panel that compares, each with its own method."""
    for asked, series in seen.drawn.items():
        if asked.dashboard == "comparison.json":
            methods = sorted(labels["method"] for labels, _ in series)
            assert ["dualfed", "local"] == methods, asked


def test_now_is_the_run_that_is_served(seen: Seen) -> None:
    """Of two runs, the one that is served is what a reader sees who has chosen nothing."""
    (served,) = set().union(*seen.now.values())
    assert served.startswith("dualfed-")
    assert {panel: {served} for panel in seen.now} == seen.now


def test_every_number_arrives(seen: Seen) -> None:
    """All that the programs declare and the rules record is in Prometheus."""
    assert [] == [number.name for number in declared() if not exposed(number) & seen.names]
    assert set() == set(recorded()) - seen.names


@pytest.mark.parametrize("program", ["server", *SITES])
def test_prometheus_has_no_objections(seen: Seen, program: str) -> None:
    """A program's page passes Prometheus's own check of names, units and words."""
    command = [tool("promtool", "prometheus"), "check", "metrics"]
    told = subprocess.run(
        command, input=seen.pages[program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (0, "", "") == (told.returncode, told.stdout, told.stderr)


def test_alerts_arrive(seen: Seen) -> None:
    """A killed site and a killed coordinator are told to Alertmanager, which keeps back what only follows from it."""
    assert TOLD == {name: seen.told[name] for name in TOLD if name in seen.told}


def test_no_alert_without_a_reason(seen: Seen) -> None:
    """Before anybody was killed, nothing was told but of sites that were slow for a moment, and of trainers that died.

    A lease is three seconds here and the machine busy. A minute's writing looks as if it filled the disk: that it goes
    on for an hour is that alert's own condition, which is shortened here.
    """
    slow, died = {"PflSitesAway", "PflSiteDisconnected"}, {"PflTrainerLost", "PflSiteDeclining"}
    assert set() == set(seen.quiet) - slow - died - {"PflDiskFilling"}
