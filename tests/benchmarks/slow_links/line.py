"""One slow line between this network namespace and another one: so many bits a second each way, and a delay.

    python line.py --to NAMESPACE --number 0 --rate 100 --delay 0.02 --mtu 9000

A pair of tun devices with this program between them, which ends with its standard input. The kernel's own means is
`netem`, which many kernels come without; this one needs tun devices alone. It lets packets out one after the other at
the line's rate, each `delay` seconds after its last bit, and drops what would have to wait longer than `QUEUE_SECONDS`,
as a router does.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

QUEUE_SECONDS = 0.1
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
ADDRESS = "10.77.0.1"
"""Of the coordinator, on every line."""


@dataclass
class Lane:
    """One direction."""

    out: int
    rate: float
    """Bytes a second."""
    delay: float
    free: float = 0.0
    """When the last packet so far has left."""
    on_the_way: deque[tuple[float, bytes]] = field(default_factory=deque)

    def take(self, packet: bytes, now: float) -> None:
        """A packet comes; where too many wait it is lost."""
        start = max(now, self.free)
        if start - now <= QUEUE_SECONDS:
            self.free = start + len(packet) / self.rate
            self.on_the_way.append((self.free + self.delay, packet))

    def deliver(self, now: float) -> None:
        """Hand over what has come to the other end."""
        while self.on_the_way and self.on_the_way[0][0] <= now:
            os.write(self.out, self.on_the_way.popleft()[1])

    @property
    def due(self) -> float:
        """When something comes to the other end next."""
        return self.on_the_way[0][0] if self.on_the_way else float("inf")


def carry(here: int, there: int, *, rate: float, delay: float, mtu: int) -> None:
    """Carry packets until standard input ends."""
    lanes = {here: Lane(there, rate, delay), there: Lane(here, rate, delay)}
    while True:
        wait = min(lane.due for lane in lanes.values()) - monotonic()
        ready, _, _ = select.select([here, there, sys.stdin], [], [], max(0.0, min(wait, 1.0)))
        if sys.stdin in ready:
            return
        now = monotonic()
        for end in ready:
            lanes[end].take(os.read(end, mtu + 64), now)
        for lane in lanes.values():
            lane.deliver(monotonic())


def open_tun(name: str) -> int:
    """A tun device of this namespace; it is gone when its file is closed."""
    handle = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return handle


def move_to(namespace: Path) -> None:
    """Let this process be in another network namespace from here on."""
    with namespace.open() as handle:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")


def tell_ip(*commands: str) -> None:
    """Set up an end by the system's own program."""
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True, timeout=10)


def main() -> None:
    """Set up both ends and carry."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--to", required=True)
    words.add_argument("--number", type=int, required=True)
    words.add_argument("--rate", type=float, required=True, help="Mbit/s")
    words.add_argument("--delay", type=float, required=True, help="seconds each way")
    words.add_argument("--mtu", type=int, required=True)
    said = words.parse_args()
    name, site = f"line{said.number}", f"10.77.{said.number + 1}.2"
    here = open_tun(name)
    tell_ip(f"link set {name} mtu {said.mtu} up", f"route add {site}/32 dev {name} src {ADDRESS}")
    move_to(Path("/run/netns") / said.to)
    there = open_tun(name)
    tell_ip(
        "link set lo up",
        f"addr add {site}/32 dev {name}",
        f"link set {name} mtu {said.mtu} up",
        f"route add {ADDRESS}/32 dev {name} src {site}",
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    carry(here, there, rate=said.rate * 1e6 / 8, delay=said.delay, mtu=said.mtu)


if __name__ == "__main__":
    main()
