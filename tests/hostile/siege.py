"""A coordinator process with few descriptors, honest sites that play rounds with it, and what it costs them."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.onboarding import enrolment
from pfl_client.trainer_process.api import DataFolder
from pfl_common.identity import Found, Keyring, discovery
from pfl_common.spec.messages import Over
from pfl_deploy.operator.commands import open_link
from pfl_server.store.journal import Journal
from tests.deploy.support.processes import PROGRAMS, Machine
from tests.hostile.bench import SteadyBench

LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); "
TICK = 0.05
MEMBER = "site_h"
"""The site that turns hostile where one of the run's own does."""
HELD_SECONDS = 60.0
"""A round that takes so long is not waited for any more."""


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
    """A coordinator over some rounds."""

    rounds: tuple[float, ...]
    """Seconds of each, from commit to commit; the last one may still be under way."""
    megabytes: float
    descriptors: int
    log_bytes: int

    @property
    def median(self) -> float:
        """Seconds a round takes as a rule."""
        return statistics.median(self.rounds)

    @property
    def mean(self) -> float:
        """Seconds a round takes, those that were held included."""
        return statistics.mean(self.rounds)


class Siege:
    """One coordinator and its honest sites; use it as a context. With `member` there is one more, to be turned."""

    def __init__(  # what a federation is made of, each by its name
        self,
        folder: Path,
        *,
        sites: int = 3,
        descriptors: int = 1024,
        rounds: int = 100_000,
        work: float = 0.0,
        member: bool = False,
        words: Sequence[str] = (),
    ) -> None:
        self.folder, self._rounds, self._work, self._words = folder, rounds, work, words
        self.honest = [f"site_{number}" for number in range(sites)] + ([MEMBER] if member else [])
        self.machine = Besieged(folder / "machine", descriptors=descriptors)
        self.heard: Counter[str] = Counter()
        """What an attacker was told, by code."""
        self._daemons: dict[str, Daemon] = {}
        self._jobs: dict[str, asyncio.Task[Over]] = {}
        self._keyrings: dict[str, Keyring] = {}
        self._closings, self._read = list[float](), 0

    async def __aenter__(self) -> Siege:
        own = ("--method", "fedavg", "--backbone", "mlp", "--sites", str(len(self.honest)))
        rounds = ("--rounds", str(self._rounds), "--durability", "process", "--log-format", "json")
        start, state = self.machine.server, self.folder / "state"
        self.process = await asyncio.to_thread(start, *own, *rounds, "--state", state, *self._words)
        folder = self.machine.home / "state" / "pfl" / "coordinators"
        self.found: Found = await asyncio.to_thread(discovery.find, None, folder)
        self._jobs = {name: asyncio.create_task(self._take_part(name)) for name in self.honest}
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.machine.end_all)
        left = set(self._jobs.values())
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

    async def turn(self) -> Keyring:
        """A site of the run is honest no more: it stops without a goodbye, and its keys are somebody's."""
        self.honest.remove(MEMBER)
        self._daemons[MEMBER].comes_back = True
        job = self._jobs.pop(MEMBER)
        while not job.done():
            job.cancel()
            await asyncio.wait({job}, timeout=1.0)
        return self._keyrings[MEMBER]

    def closings(self) -> list[float]:
        """When rounds were done, as the coordinator's log has it; the sites have to be there still."""
        for name, job in self._jobs.items():
            assert not job.done(), f"the honest {name} has ended: {job}"
        self._check_alive()
        return self._follow()

    def _check_alive(self) -> None:
        code = self.process.poll()
        assert code is None, f"the coordinator has ended with {code}: {self.machine.said('server')[-1000:]}"

    def _follow(self) -> list[float]:
        """Read what the log has got since."""
        with (self.machine.home / "server.log").open("rb") as log:
            log.seek(self._read)
            whole, end, _ = log.read().rpartition(b"\n")
        self._read += len(whole) + len(end)
        lines = (json.loads(line) for line in whole.splitlines() if line.startswith(b"{"))
        closed = (line["timestamp"] for line in lines if line["event"] == "round closed")
        self._closings += (datetime.fromisoformat(moment).timestamp() for moment in closed)
        return self._closings

    async def play(self, number: int, *, seconds: float = 60.0) -> None:
        """Wait until so many more rounds are done."""
        wanted = len(self.closings()) + number
        async with asyncio.timeout(seconds):
            while len(self.closings()) < wanted:  # noqa: ASYNC110  # what is waited for is in another process
                await asyncio.sleep(TICK)

    async def watch(self, seconds: float, *, rounds: int = 1) -> Seen:
        """The coordinator for so long at least and so many rounds, to the end of the one then under way, with the most
        it takes of the machine meanwhile.
        """
        began, first, log = time.monotonic(), max(0, len(self.closings()) - 1), self._log_bytes()
        megabytes, descriptors, wanted, last = 0.0, 0, 0, began
        while not wanted or len(self.closings()) < wanted:
            megabytes, descriptors = max(megabytes, self.megabytes()), max(descriptors, self.descriptors())
            before = len(self._closings)
            await asyncio.sleep(TICK)
            now, done = time.monotonic(), len(self.closings())
            last = now if done > before else last
            if now - last > HELD_SECONDS:
                break
            if not wanted and now - began >= seconds and done - first > rounds:
                wanted = done + 1
        ends = self.closings()[first:]
        held = [time.time() - ends[-1]] if time.monotonic() - last > HELD_SECONDS else []
        taken = [after - before for before, after in pairwise(ends)]
        return Seen((*taken, *held), megabytes, descriptors, self._log_bytes() - log)

    async def stop(self, *, seconds: float = 60.0) -> tuple[set[str], float]:
        """End the run in good order, as its operator would: what the honest sites are told, and how long that takes."""
        began = time.monotonic()
        async with open_link(self.found) as link:
            await link.stop()
        return await self.wait_over(seconds=seconds), time.monotonic() - began

    async def wait_over(self, *, seconds: float = 60.0) -> set[str]:
        """What the honest sites are told when the run is over."""
        async with asyncio.timeout(seconds):
            return {over.status for over in await asyncio.gather(*self._jobs.values())}

    async def quit(self) -> int:
        """The coordinator is stopped as a service is; its exit code."""
        self._check_alive()
        return await asyncio.to_thread(self.machine.stop, self.process)

    @property
    def run(self) -> Path:
        """The folder of its run."""
        return next((self.folder / "state" / "runs").glob("*/journal.sqlite")).parent

    def attempts(self) -> list[dict[str, object]]:
        """All attempts, from the journal of a coordinator that has ended."""
        journal = Journal(self.run / "journal.sqlite", durability="process")
        try:
            return journal.rounds()
        finally:
            journal.close()

    def megabytes(self) -> float:
        """Anonymous memory of the coordinator now; only Linux tells."""
        self._check_alive()
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

    def descriptors(self) -> int:
        """How many it has open now."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def _log_bytes(self) -> int:
        return (self.machine.home / "server.log").stat().st_size

    async def _take_part(self, name: str) -> Over:
        keyring, place = await self.enrol(name), self.folder / name
        self._keyrings[name] = keyring
        async with GrpcLink(self.found.addresses.control, keyring) as link:
            envelopes, bench = SealedEnvelopes(keyring), SteadyBench(name, self._work)
            daemon = Daemon(DataFolder(place, name), link=link, bench=bench, envelopes=envelopes, state=place)
            self._daemons[name] = daemon
            return await daemon.run()


def read_log(siege: Siege) -> list[dict[str, object]]:
    """The coordinator's log, line by line."""
    return [json.loads(line) for line in siege.machine.said("server").splitlines() if line.startswith("{")]
