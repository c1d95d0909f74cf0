"""What hostile data and a hostile coordinator do to a site's programs.

    python -m tests.hostile.intake [NAME ...] [--seconds 60]

Each folder is read by a real `pfl doctor` and a real `pfl-client`, each specification heard by a real `pfl-client`, in
processes whose memory is limited. For each: exit code, seconds, the most memory of any of its processes, its first
words. The exit code is 1 if one ends in a traceback or by a signal, takes more than 1 GB or 60 s, lets through signs
that a terminal obeys, or starts a program that the data name. On a machine that is busy give it more seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pfl_common.app import logs
from pfl_common.errors import Refused
from pfl_common.spec.messages import Blob, Gathering, Joined
from pfl_common.spec.run import Description
from tests.client.support.scripted_site import pin
from tests.deploy.support.processes import PROGRAMS
from tests.hostile.intake_files import FOLDERS, write_pictures
from tests.network.federation import Federation
from tests.network.test_admission import invite

MOST_BYTES, MOST_SECONDS = 1 << 30, 60.0
ADDRESS_SPACE = 8 << 30
"""Of each process, so that a guard that is gone does not take the machine with it."""
LOOK_SECONDS, LONGEST_SECONDS = 0.02, 400.0
"""How often it is looked at, and when it is killed, which is a signal."""
OBEYED = "\x1b\x07\u202e"
OUTSIDE = ("gs", "convert", "magick", "sh")
"""Programs that decoders start; here they leave a note that they were."""
SITE = "hospital_a"


def spec(**fields: object) -> str:
    """An honest run's specification, but for these fields."""
    return json.dumps({**json.loads(pin().to_json()), **fields})


def _shaped(*sides: int) -> str:
    tensor = {"name": "w", "dtype": "float32", "shape": sides, "group": ""}
    return spec(manifests={**json.loads(pin().to_json())["manifests"], "init": [tensor]})


SAID: dict[str, Callable[[], object]] = {
    "negative lease": lambda: spec(lease_seconds=-1),
    "hundred thousand threads": lambda: spec(threads=100_000),
    "no JSON": lambda: "{'rounds': 3}",
    "nested JSON": lambda: "[" * 1_000_000,
    "rounds without end": lambda: spec(rounds=10**18),
    "batch of a billion": lambda: spec(settings={"batch": 10**12}),
    "pictures of terabytes": lambda: spec(
        model={"backbone": "mlp", "shape": [3, 10**6, 10**6], "classes": ["a", "b"]}
    ),
    "tensor of exabytes": lambda: _shaped(2**40, 2**40),
    "shape too long to write": lambda: _shaped(10**2500, 10**2500),
    "path as a name": lambda: spec(id="../../../escaped"),
    "no first model": lambda: spec(manifests={}),
    "words that terminals obey": lambda: Gathering(("\x1b[2J\x1b]0;owned\x07", "\u202eevil", "a\nb" * 400)),
    "refusal in such words": lambda: Refused("classes", "\x1b[2J\x07\u202e" * 99),
}
"""What a coordinator with true certificates answers to Join."""


@dataclass
class Outcome:
    """How one process ended, and what it cost."""

    code: int
    seconds: float
    peak: int
    said: str
    taken: bool = False
    """It had nothing against the data: it was told to end once it had joined."""
    started: list[str] = field(default_factory=list)
    """Programs that it started and should not have."""

    def wrong(self, most_seconds: float = MOST_SECONDS) -> list[str]:
        """Why this is no end for a program of ours."""
        found = {
            "a traceback": "Traceback (most recent call last)" in self.said,
            f"ended by signal {-self.code}": self.code < 0,
            f"{self.peak >> 20} MB": self.peak > MOST_BYTES,
            f"{self.seconds:.0f} s": self.seconds > most_seconds,
            "no words": not self.said.strip(),
            "signs that a terminal obeys": any(sign in self.said for sign in OBEYED),
            f"started {', '.join(self.started)}": bool(self.started),
        }
        return [what for what, is_so in found.items() if is_so]

    def row(self, name: str, program: str, wrong: list[str]) -> str:
        """One line of the table."""
        end = (
            f"WRONG: {', '.join(wrong)}"
            if wrong
            else "taken"
            if self.taken
            else "refused"
            if self.code
            else "ended"
        )
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        telling = next(
            (line for line in lines if "error" in line.lower() or "expected" in line), (lines or [""])[0]
        )
        figures = f"{self.code:4} {self.seconds:6.1f} {self.peak >> 20:6}"
        return f"{name:28} {program:11} {figures}  {end}: {telling[:110]}"


class Place:
    """One user's machine, on which programs that data could name leave a note."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._notes, self._bin = folder, folder / "started", folder / "bin"
        self._bin.mkdir(parents=True)
        for name in OUTSIDE[:-1]:
            (self._bin / name).write_text(f'#!/bin/sh\necho {name} >> "{self._notes}"\n')
            (self._bin / name).chmod(0o755)

    def run(self, program: str, *words: str | Path, until: Callable[[], bool] = lambda: False) -> Outcome:
        """Run a program to its end, or until this is so and then to its end by SIGTERM."""
        self._notes.unlink(missing_ok=True)
        limit = (
            f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({ADDRESS_SPACE}, {ADDRESS_SPACE})); "
        )
        command = [sys.executable, "-c", limit + PROGRAMS[program], *map(str, words)]
        began = time.monotonic()
        with (self.folder / "said").open("w+b") as said:
            process = subprocess.Popen(
                command, stdout=said, stderr=said, cwd=self.folder, env=self._environment()
            )
            peak, taken = self._follow(process, until, began)
            said.seek(0)
            text = said.read().decode(errors="replace")
        seconds = time.monotonic() - began
        started = self._notes.read_text().split() if self._notes.exists() else []
        return Outcome(process.returncode, seconds, peak, text, taken, started)

    def _follow(
        self, process: subprocess.Popen[bytes], until: Callable[[], bool], began: float
    ) -> tuple[int, bool]:
        peak, taken = 0, False
        while process.poll() is None:
            peak = max([peak, *map(read_peak, family(process.pid))])
            if not taken and until():
                taken = True
                process.send_signal(signal.SIGTERM)
            if time.monotonic() - began > LONGEST_SECONDS:
                process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
        return peak, taken

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PFL_")}
        path = f"{self._bin}{os.pathsep}{kept.get('PATH', '')}"
        return kept | {"PATH": path, "XDG_STATE_HOME": str(self.folder / "state"), "PYTHONUNBUFFERED": "1"}


def family(pid: int) -> Iterator[int]:
    """A process and those below it."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def read_peak(pid: int) -> int:
    """The most memory that a process has had (VmHWM), in bytes; only Linux tells."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) << 10
    return 0


async def read_folder(federation: Federation, folder: Path, name: str) -> Iterator[tuple[str, Outcome]]:
    """A folder by the site's engineer and by the site itself."""
    place, data = Place(folder), folder / SITE
    FOLDERS[name](data)
    federation.desk.joined.clear()
    join = invite(federation, SITE, again=True)
    doctor = await asyncio.to_thread(place.run, "pfl", "doctor", "--data", data)
    client = await asyncio.to_thread(
        place.run, "pfl-client", "--data", data, "--join", join, until=lambda: SITE in federation.desk.joined
    )
    return iter((("pfl doctor", doctor), ("pfl-client", client)))


async def hear(federation: Federation, folder: Path, name: str) -> Iterator[tuple[str, Outcome]]:
    """What a coordinator answers to a site that has sound data."""
    place, data, asked = Place(folder), folder / SITE, 0
    write_pictures(data)
    said = SAID[name]()

    async def join(site: str, description: Description) -> object:
        nonlocal asked
        asked += 1
        if isinstance(said, Refused):
            raise said
        card = federation.authority.coordinator_card(now=federation.now)
        return Joined(said, Blob("ab" * 32, 9), card=card) if isinstance(said, str) else said

    honest, federation.desk.join = federation.desk.join, join
    try:
        file = invite(federation, SITE, again=True)
        words = ("pfl-client", "--data", data, "--join", file)
        found = await asyncio.to_thread(place.run, *words, until=lambda: asked > 5)
    finally:
        federation.desk.join = honest
    return iter((("pfl-client", found),))


async def main_of(names: list[str], seconds: float, show: Callable[[str], object]) -> int:
    """All attacks, one after the other; gives how many ended wrong."""
    bad = 0
    show(f"{'attack':28} {'program':11} {'code':>4} {'s':>6} {'MB':>6}")
    with tempfile.TemporaryDirectory(prefix="pfl-intake-") as top:
        for place, name in enumerate(names):
            folder = Path(top) / str(place)
            (folder / "federation").mkdir(parents=True)
            federation = Federation(folder / "federation")
            await federation.start()
            federation.desk.gathering = True
            try:
                play = read_folder if name in FOLDERS else hear
                for program, outcome in await play(federation, folder / "site", name):
                    wrong = outcome.wrong(seconds)
                    show(outcome.row(name, program, wrong))
                    bad += bool(wrong)
            finally:
                await federation.stop()
                shutil.rmtree(folder)
    return bad


def main() -> int:
    """Attack, and print a table."""
    every = [*FOLDERS, *SAID]
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", help="; ".join(every))
    words.add_argument("--seconds", type=float, default=MOST_SECONDS, help="that one may take")
    asked = words.parse_args()
    if unknown := sorted(set(asked.names) - set(every)):
        words.error(f"no attack {unknown[0]!r}; known: {', '.join(every)}")
    logs.configure(level="critical")
    bad = asyncio.run(main_of(asked.names or every, asked.seconds, lambda row: print(row, flush=True)))
    print(f"{bad} ended wrong" if bad else "all ended in words")
    return min(1, bad)


if __name__ == "__main__":
    raise SystemExit(main())
