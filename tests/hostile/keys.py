"""Certificates of seconds in a real run, the change of the authority in it, and what a renewal costs its rounds.

`python -m tests.hostile.keys [--life 10s] [--seconds 60]`: real processes on loopback, figures at the end.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.deploy.support.processes import Machine, write_site

NAMES = ("hospital_a", "hospital_b")


def status(machine: Machine) -> dict[str, Any]:
    """What the coordinator says of its run."""
    return json.loads(machine.read(f"{(machine.discovery() or {})['http']}/status.json"))


def play(machine: Machine, *, life: str, seconds: float) -> dict[str, object]:
    """A run whose certificates live so long, watched for so long; the authority is changed in the middle."""
    for seed, name in enumerate(NAMES):
        write_site(machine.home / name, samples=60, size=12, seed=seed)
    server = machine.server("--method", "fedavg", "--rounds", "100000", "--certificate-life", life)
    sites = [machine.client(machine.home / name) for name in NAMES]
    machine.wait_for(lambda: status(machine)["round"] > 2, server, "server")
    begun, before = time.monotonic(), status(machine)["round"]
    rotated, pause = False, 0.5
    while (spent := time.monotonic() - begun) < seconds:
        for process, name in zip((server, *sites), ("server", *NAMES), strict=True):
            machine.wait_for(lambda: True, process, name)
        if not rotated and spent > seconds / 3:
            assert 0 == machine.call("pfl", "rotate-ca").returncode
            rotated = True
        threading.Event().wait(pause)
    finished = machine.call("pfl", "rotate-ca", "--finish")
    after = status(machine)
    closed = after["round"] - before
    assert 0 == machine.call("pfl", "stop").returncode
    ended = [machine.finish(site, log=name) for site, name in zip(sites, NAMES, strict=True)]
    said = {name: machine.said(name) for name in ("server", *NAMES)}
    return {
        "life": life,
        "seconds": round(time.monotonic() - begun, 1),
        "rounds": closed,
        "renewals": {name: text.count("certificate renewed") for name, text in said.items()},
        "rounds abandoned": len(re.findall(r"round abandoned|abandoned=", said["server"])),
        "updates lost": sum(point["lost"] for point in after["curve"]),
        "authority": finished.stdout.strip(),
        "exit codes": ended,
    }


def main() -> None:
    """Play it, and tell the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--life", default="10s")
    parser.add_argument("--seconds", type=float, default=60)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="pfl-keys-") as folder:
        machine = Machine(Path(folder) / "machine")
        try:
            found = play(machine, life=asked.life, seconds=asked.seconds)
        finally:
            machine.end_all()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
