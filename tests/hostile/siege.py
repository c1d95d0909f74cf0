"""A coordinator process with few descriptors, honest sites that play rounds with it, and what it costs them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.onboarding import enrolment
from pfl_client.trainer_process.api import DataFolder
from pfl_common.identity import Found, Keyring, discovery
from tests.benchmarks.transport.light import LightBench
from tests.deploy.support.processes import PROGRAMS, Machine

LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); "
TICK = 0.05


@dataclass
class Besieged(Machine):
    """A machine whose programs may have so many files and connections open, and no more."""

    descriptors: int = 1024

    def start(self, program: str, *words: str | Path, log: str) -> subprocess.Popen[bytes]:
        """Start a program; what it says goes to a file."""
        self.home.mkdir(parents=True, exist_ok=True)
        text = LIMITED.format(self.descriptors) + PROGRAMS[program]
        with (self.home / f"{log}.log").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", text, *map(str, words)],
                stdout=out,
                stderr=out,
                cwd=self.home,
                env=self.environment,
            )
        self.running.append(process)
        return process


@dataclass(frozen=True)
class Seen:
    """A coordinator over some seconds."""

    rounds: int
    seconds: float
    megabytes: float
    descriptors: int
    log_bytes: int

    @property
    def round_seconds(self) -> float:
        """From commit to commit, in the mean."""
        return self.seconds / self.rounds if self.rounds else float("inf")


class Siege:
    """One coordinator and its honest sites; use it as a context."""

    def __init__(
        self, folder: Path, *, sites: int = 3, descriptors: int = 1024, words: Sequence[str] = ()
    ) -> None:
        self.folder, self._sites = folder, [f"site_{number}" for number in range(sites)]
        self.machine = Besieged(folder / "machine", descriptors=descriptors)
        self._words, self._daemons = words, list[asyncio.Task[None]]()

    async def __aenter__(self) -> Siege:
        words = (
            "--method",
            "fedavg",
            "--backbone",
            "mlp",
            "--sites",
            str(len(self._sites)),
            "--rounds",
            "100000",
        )
        end = ("--durability", "process", "--state", self.folder / "state", "--log-format", "json")
        start = self.machine.server
        self.process = await asyncio.to_thread(start, *words, *end, *self._words)
        folder = self.machine.home / "state" / "pfl" / "coordinators"
        self.found: Found = await asyncio.to_thread(discovery.find, None, folder)
        self._daemons = [asyncio.create_task(self._take_part(name)) for name in self._sites]
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.machine.end_all)
        left = set(self._daemons)
        while left:
            # More than once: a daemon that is just answered may take the first for the end of a call.
            for daemon in left:
                daemon.cancel()
            _, left = await asyncio.wait(left, timeout=1.0)

    def port(self, of: str) -> int:
        """The number of a port: control, enrolment or http."""
        return int(getattr(self.found.addresses, of).rpartition(":")[2])

    async def enrol(self, name: str) -> Keyring:
        """The keys of one more site."""
        keyring = Keyring.open(self.folder / name / "keys")
        await enrolment.enrol_same_user(keyring, self.found, name)
        return keyring

    def committed(self) -> int:
        """Rounds that are done, as the coordinator's log has it; the sites have to be there still."""
        for daemon in self._daemons:
            assert not daemon.done(), f"an honest site has ended: {daemon}"
        assert self.process.poll() is None, self.machine.said("server")
        return sum(line.get("event") == "round closed" for line in read_log(self))

    async def play(self, number: int, *, seconds: float = 60.0) -> int:
        """Wait until so many more rounds are done; gives the last one's number."""
        wanted = self.committed() + number
        async with asyncio.timeout(seconds):
            while self.committed() < wanted:  # noqa: ASYNC110  # what is waited for is in another process
                await asyncio.sleep(TICK)
        return self.committed()

    async def watch(self, seconds: float) -> Seen:
        """What the coordinator does for so long, with the most it takes of the machine meanwhile."""
        began, first, log = time.monotonic(), self.committed(), self._log_bytes()
        megabytes, descriptors = 0.0, 0
        while time.monotonic() - began < seconds:
            megabytes, descriptors = max(megabytes, self.megabytes()), max(descriptors, self.descriptors())
            await asyncio.sleep(TICK)
        last = self.committed()
        return Seen(last - first, time.monotonic() - began, megabytes, descriptors, self._log_bytes() - log)

    def megabytes(self) -> float:
        """Anonymous memory of the coordinator now; only Linux tells."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

    def descriptors(self) -> int:
        """How many it has open now."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def _log_bytes(self) -> int:
        return (self.machine.home / "server.log").stat().st_size

    async def _take_part(self, name: str) -> None:
        keyring, place = await self.enrol(name), self.folder / name
        async with GrpcLink(self.found.addresses.control, keyring) as link:
            envelopes = SealedEnvelopes(keyring)
            await Daemon(
                DataFolder(place, name), link=link, bench=LightBench(), envelopes=envelopes, state=place
            ).run()


def read_log(siege: Siege) -> list[dict[str, object]]:
    """The coordinator's log, line by line."""
    return [json.loads(line) for line in siege.machine.said("server").splitlines() if line.startswith("{")]
