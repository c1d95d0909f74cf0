"""A real browser without a screen, driven over WebDriver: plain HTTP to chromedriver, no library between."""

import base64
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

from tests.deploy.support.tools import tool

# The sandbox wants rights that test machines seldom give; pages here come from our own programs.
WORDS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
)
TWO_FRAMES = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
KEYS = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}


class Browser:
    """One window. What scripts give back is JSON."""

    def __init__(self, driver: str, home: Path) -> None:
        self._driver, self._session = driver, ""
        options = {"args": [*WORDS, f"--user-data-dir={home}"], "binary": tool("chromium", "chromium")}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"
        self.open("about:blank")
        self.requests()  # those of the browser's own first page

    def open(self, url: str) -> None:
        """Go to a page and wait for it to load."""
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *words: Any) -> Any:
        """Run a function's body in the page."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(words)})

    def text(self, selector: str) -> str:
        """What a person reads there."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def texts(self, selector: str) -> list[str]:
        """The same of all that match."""
        script = "return [...document.querySelectorAll(arguments[0])].map((found) => found.innerText)"
        return list(self.run(script, selector))

    def wait_for(self, event: Callable[[], object], *, seconds: float = 30) -> None:
        """Wait for something to become true in the page."""
        end = time.monotonic() + seconds
        while not event():
            assert time.monotonic() < end, f"not within {seconds} s; the page says:\n{self.text('body')}"
            Event().wait(0.1)

    def press(self, key: str) -> None:
        """A key, as from a keyboard."""
        words = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.command("Input.dispatchKeyEvent", type="keyDown", **words, **text)
        self.command("Input.dispatchKeyEvent", type="keyUp", **words)

    def command(self, name: str, **words: Any) -> Any:
        """Speak to the browser's own developer tools."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": words})

    def look(self, *, width: int, height: int, dark: bool = False, scale: float = 1) -> None:
        """The window's size, and whether its user likes it dark."""
        phone = width < 600
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.command("Emulation.setEmulatedMedia", features=[scheme, still])
        self._call("POST", "/execute/async", {"script": TWO_FRAMES, "args": []})  # until it is drawn so

    def picture(self, path: Path, *, whole: bool = True) -> Path:
        """Keep what is seen, from top to bottom unless told."""
        words: dict[str, Any] = {"format": "png"}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            words |= {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", **words)["data"]))
        return path

    def complaints(self) -> list[str]:
        """What stands in the console as a warning or an error since the last time."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Every address asked for since the last time."""
        entries = self._call("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [str(request["request"]["url"]) for request in sent]

    def close(self) -> None:
        """End the browser."""
        if self._session:
            self._call("DELETE", "", None)

    def _call(self, method: str, path: str, words: object) -> Any:
        body = None if words is None else json.dumps(words).encode()
        asked = urllib.request.Request(f"{self._driver}{self._session}{path}", body, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"the browser refuses {path}: {error.read().decode()}") from None


@contextmanager
def browsing(home: Path) -> Iterator[Browser]:
    """A browser with an empty profile, ended at the end; skips where it is not installed."""
    program = tool("chromedriver", "chromium-driver")
    home.mkdir(parents=True, exist_ok=True)
    with (home / "driver.log").open("wb") as log:
        driver = subprocess.Popen([program, "--port=0"], stdout=log, stderr=log)
    browser = None
    try:
        browser = Browser(f"http://127.0.0.1:{_find_port(home / 'driver.log', driver)}", home / "profile")
        yield browser
    finally:
        if browser is not None:
            with suppress(AssertionError, OSError):
                browser.close()
        driver.terminate()
        driver.wait(20)


def _find_port(log: Path, driver: "subprocess.Popen[bytes]") -> int:
    end = time.monotonic() + 30
    while not (found := re.search(r"started successfully on port (\d+)", log.read_text())):
        assert driver.poll() is None, f"chromedriver ended:\n{log.read_text()}"
        assert time.monotonic() < end, f"chromedriver does not start:\n{log.read_text()}"
        Event().wait(0.05)
    return int(found[1])
