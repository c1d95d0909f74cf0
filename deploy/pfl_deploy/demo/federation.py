"""The demo's real federation with DualFed: a coordinator and daemons over mutual TLS, each site with its trainer."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections import Counter
from pathlib import Path
from time import perf_counter

from pfl_common.errors import RunFailed
from pfl_common.identity import Found, IdentityError, discovery
from pfl_deploy.demo.following import Follower, Trained, find_folders
from pfl_deploy.demo.live import Board
from pfl_deploy.demo.plan import DUALFED, Plan
from pfl_deploy.demo.processes import Programs

POLL_SECONDS = 0.1
START_SECONDS = 120.0
_COUNTER = re.compile(r'^pfl_bytes_total\{direction="(\w+)",kind="(\w+)"\} (\S+)', re.MULTILINE)


async def train(plan: Plan, programs: Programs, board: Board) -> Trained:
    """Start everything, wait for the last round, ask the coordinator for its counters, end it."""
    began = perf_counter()
    follower = Follower(DUALFED, plan, board, lambda: _folders(plan))
    board.say("a coordinator starts: it makes the federation's certificate authority and opens its ports")
    server = await programs.start("pfl-server", _server_words(plan), name="coordinator", hear=follower.hear)
    found = await programs.during(_published(plan), server)
    board.say(f"it listens on {found.addresses.control}; {len(plan.sites)} sites start and enrol")
    sites = [
        await programs.start("pfl-client", _site_words(plan, path), name=path.name) for path in plan.sites
    ]
    await programs.during(asyncio.gather(*(site.finish() for site in sites)), server)
    counters = await asyncio.to_thread(read_counters, found.addresses.http)
    await programs.end(server)
    trained = follower.trained(_folders(plan), began)
    trained.counters, trained.processes = counters, 1 + 2 * len(sites)
    return trained


def read_counters(address: str) -> dict[str, int]:
    """The coordinator's own counters: bytes of parcels by direction; nothing if its page does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as page:
            text = page.read().decode()
    except OSError:
        return {}
    return count_parcels(text)


def count_parcels(page: str) -> dict[str, int]:
    """Bytes by direction from a page of metrics, without what only keeps the conversation going."""
    counted: Counter[str] = Counter()
    for direction, kind, value in _COUNTER.findall(page):
        if kind != "calls":
            counted[direction] += int(float(value))
    return dict(counted)


async def _published(plan: Plan) -> Found:
    """Wait until sites can find the coordinator, as they do: by the file it leaves for its user."""
    end = perf_counter() + START_SECONDS
    while True:
        try:
            return discovery.find(None, plan.state / "pfl" / "coordinators")
        except IdentityError:
            if perf_counter() > end:
                raise RunFailed(
                    f"the coordinator opened no port in {START_SECONDS:.0f} s; its log is in {plan.logs}"
                ) from None
        await asyncio.sleep(POLL_SECONDS)


def _server_words(plan: Plan) -> list[str | Path]:
    free = ("--port", "0", "--enrol-port", "0", "--http-port", "0")
    # All sites of the demo are one person's: means over four of them are shown.
    sites = ("--sites", str(len(plan.sites)), "--fewest-reporters", "1")
    return [*DUALFED.words(plan), *free, *sites, "--state", plan.state / "coordinator"]


def _site_words(plan: Plan, data: Path) -> list[str | Path]:
    return ["--data", data, "--state", plan.state / "sites", "--device", "cpu"]


def _folders(plan: Plan) -> dict[str, Path]:
    return find_folders(plan, plan.state / "sites", "*/{site}/runs/*")
