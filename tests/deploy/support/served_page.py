"""The status page without a coordinator behind it: served from a status that a test makes, and read in a browser."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn
from starlette.applications import Starlette

from pfl_common.spec.messages import Event, Point, RunStatus, SiteStatus
from pfl_server.status import page
from tests.deploy.support.browser import Browser

NAMES = ("hospital_a", "hospital_b", "hospital_c")
NOW = 1_790_000_000.0  # 21 September 2026, 14:13:20 UTC
FAINT = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const light = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, part, at) => sum + part * linear(color[at] / 255), 0);
const ground = (of) => {
  for (let e = of; e; e = e.parentElement) {
    const color = parse(getComputedStyle(e).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color;
  }
};
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const of = walk.currentNode.parentElement;
  const words = walk.currentNode.data.trim();
  if (!words || !of.checkVisibility() || ["NOSCRIPT", "OPTION"].includes(of.tagName)) continue;
  const style = getComputedStyle(of);
  const [one, other] = [light(parse(of.closest("svg") ? style.fill : style.color)), light(ground(of))];
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  if (ratio < 4.5) found.push(`${words}: ${ratio.toFixed(2)}`);
}
return found;
"""
"""Words that do not stand out from their ground as WCAG's level AA asks."""

UNNAMED = """
const all = (kind) => [...document.querySelectorAll(kind)].filter((e) => e.checkVisibility());
const said = (e, kind) => e.querySelector(kind)?.textContent;
return [
  ...all("table").filter((e) => !said(e, "caption")),
  ...all("svg").filter((e) => !said(e, "title") || !said(e, "desc")),
  ...all("input, select, button, a, summary").filter((e) => !e.labels?.length && !e.innerText),
  ...all("section").filter((e) => !document.getElementById(e.getAttribute("aria-labelledby"))),
].map((e) => e.outerHTML.slice(0, 120));
"""
"""What a screen reader would have no name for."""

WIDER = """
const wide = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth <= wide) return [];
const out = (e) => e.getBoundingClientRect().right > wide + 1 && !e.closest(".wide");
const found = [...document.querySelectorAll("body *")].filter(out).map((e) => e.outerHTML.slice(0, 90));
return [`${document.documentElement.scrollWidth} pixels`, ...found];
"""
"""What makes a page scroll sideways."""

HIDE = """
Object.defineProperty(document, "hidden", { value: arguments[0], configurable: true });
document.dispatchEvent(new Event("visibilitychange"));
"""
"""Put the page into the background, or back."""

ROWS = """
const cells = (row) => [...row.cells].map((cell) => cell.textContent);
return [...document.querySelectorAll("#roster tbody tr")].map(cells);
"""


@dataclass
class Served:
    """The page of a coordinator that says what the test wants, and can be made to go away."""

    status: RunStatus
    port: int
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer, from a thread, for as long as the block lasts."""

        def tell() -> RunStatus:
            self.asked.append("status")
            return self.status

        app = page.Guard(Starlette(routes=page.routes(tell)), loopback=True)
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(20)
            listener.close()


def under_way(**changes: Any) -> RunStatus:
    """A run of three sites in its third round."""
    curve = tuple(
        Point(
            n, NOW - 60 + 10 * n, 1.5 * n, 3, 3 - n % 2, n % 2, 0.4 + 0.1 * n, 0.05, 0.3, 2_000_000, 1_500_000
        )
        for n in (1, 2)
    )
    sites = (
        SiteStatus("hospital_a", "here", 0.0, "waiting", "waiting"),
        SiteStatus("hospital_b", "here", 4.0, "training: 30 of 90 samples", "working"),
        SiteStatus("hospital_c", "away", 75.0, "", "away"),
    )
    events = (
        Event(NOW - 5, "warning", "hospital_c declined: disk_full"),
        Event(NOW - 90_000, "info", "the run began"),
    )
    made = RunStatus(
        "run-1", "dualfed", "running", 3, 9, 1, awaited=NAMES[1:], sites=sites, started=NOW - 90_000, now=NOW
    )
    made = replace(made, opened=NOW - 12, cohort=3, counted=1, spec={"sites": 3, "rounds": 9, "quorum": 0.5})
    made = replace(made, curve=curve, phases={"work": 1.2, "fold": 0.1}, events=events)
    return replace(made, **changes)


def visit(browser: Browser, url: str) -> None:
    """Open the page and wait for its first facts."""
    browser.open(url)
    browser.wait_for(
        lambda: "false" == browser.run("return document.getElementById('all').getAttribute('aria-busy')")
    )


def rows(browser: Browser) -> list[list[str]]:
    """The table of sites, as it is read."""
    return list(browser.run(ROWS))


def overflow(browser: Browser) -> list[Any]:
    """What is wider than the window."""
    return list(browser.run(WIDER))
