"""A namespace for each site with a slow line to the coordinator's; all of them are gone at the end."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.benchmarks.slow_links.line import ADDRESS

HERE = Path(__file__).parent
MOST_LINES = 16
MTU = {10: 1500, 100: 9000, 1000: 60_000}
"""By Mbit/s: of faster lines larger packets, so that a program can carry them."""
PROBE = """
import socket, sys, time
began = time.monotonic()
line = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
connected = time.monotonic() - began
got, first = 0, 0.0
while chunk := line.recv(1 << 20):
    first = first or time.monotonic()
    got += len(chunk)
print(connected, got * 8 / (time.monotonic() - first) / 1e6)
"""


class NoLines(Exception):
    """This machine gives none; the message says what was tried."""


@dataclass(frozen=True)
class Kind:
    """A line's rate in Mbit/s, and the seconds there and back."""

    rate: int
    round_trip: float = 0.040


@dataclass(frozen=True)
class Probed:
    """A line as plain TCP found it."""

    seconds: float
    """There and back."""
    carried: float
    """Mbit/s."""


class Lines:
    """So many lines of one kind, from the namespace that this process is in."""

    def __init__(self, kind: Kind, count: int) -> None:
        if count > MOST_LINES:
            raise ValueError(f"{count} lines were asked for, {MOST_LINES} at most")
        self._kind = kind
        self._names = [f"pfl-line-{os.getpid()}-{number}" for number in range(count)]
        self._carriers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Lines:
        try:
            _tell(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"])
            for number, name in enumerate(self._names):
                _tell(["ip", "netns", "add", name])
                self._carriers.append(self._carry(number, name))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def at(self, site: int) -> list[str]:
        """What stands before a command that is to run at the other end of a site's line."""
        return ["ip", "netns", "exec", self._names[site]]

    def inside(self, program: str) -> list[str]:
        """What stands before the command of a site, `site_003`; nothing before others'."""
        found = re.fullmatch(r"site_(\d+)", program)
        return self.at(int(found[1])) if found else []

    def probe(self) -> Probed:
        """The first line's round trip and rate, by a connection of plain TCP."""
        amount = int(self._kind.rate * 1e6 / 8 * 2)
        with socket.create_server((ADDRESS, 0)) as server:
            port = str(server.getsockname()[1])
            command = [*self.at(0), sys.executable, "-c", PROBE, ADDRESS, port]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
                server.settimeout(20)
                line, _ = server.accept()
                with line:
                    line.settimeout(60)
                    line.sendall(bytes(amount))
                told, _ = client.communicate(timeout=60)
        seconds, carried = map(float, told.split())
        return Probed(round(seconds, 4), round(carried, 1))

    def _carry(self, number: int, name: str) -> subprocess.Popen[str]:
        kind = self._kind
        words = {"--to": name, "--number": number, "--rate": kind.rate, "--delay": kind.round_trip / 2}
        words["--mtu"] = MTU.get(kind.rate, 1500)
        said = [str(word) for pair in words.items() for word in pair]
        carrier = subprocess.Popen(
            [sys.executable, str(HERE / "line.py"), *said],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if carrier.stdout is None or carrier.stdout.readline() != "ready\n":
            raise NoLines(f"line.py to {name} did not begin: it ended with {carrier.wait(10)}")
        return carrier

    def _end(self) -> None:
        """Carriers end with their standard input; whoever does not is ended."""
        for carrier in self._carriers:
            carrier.communicate(timeout=10)
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=10, check=False)


def expect_lines() -> None:
    """Say what is missing on a machine that cannot make lines."""
    needed = {
        "ip": shutil.which("ip"),
        "/dev/net/tun": os.path.exists("/dev/net/tun"),
        "root": not os.geteuid(),
    }
    if missing := [name for name, there in needed.items() if not there]:
        raise NoLines(
            f"no slow lines on this machine: {', '.join(missing)} is missing\n"
            "  tried: tun devices between namespaces (`ip netns add`), with a program between them\n"
            "  what to do: run as root on Linux, with iproute2 and /dev/net/tun (in a container: --device /dev/net/tun "
            "--cap-add NET_ADMIN --cap-add SYS_ADMIN)"
        )


def _tell(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode:
        raise NoLines(f"`{' '.join(command)}` said {done.stderr.strip()!r}")
