"""A parcel of 45 MiB each way; at 60 % of it the line, the site or the coordinator is gone: only the rest crosses."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pfl_client.run_folder.audit import entries
from pfl_common.identity import read_join_file, write_join_file
from pfl_server.store.journal import Journal
from tests.deploy.support.processes import Machine, write_site
from tests.network.cutting_proxy import CuttingProxy, Mark, Way

SITE = "hospital_a"
NUMBERS = 11_689_512
PARCEL_BYTES = 4 * NUMBERS
MARK_BYTES = PARCEL_BYTES * 6 // 10
WAYS: tuple[Way, ...] = ("down", "up")
COMMAND = ("--method", "freight", "--sites", "1", "--rounds", "1", "--lease-seconds", "60")
START = Path(__file__).parents[1] / "support" / "freight"


class Loaded(Machine):
    """A machine whose programs know one method more."""

    @property
    def environment(self) -> Mapping[str, str]:
        """With a start file that every interpreter reads."""
        before = super().environment
        path = os.pathsep.join([str(START), *filter(None, [before.get("PYTHONPATH")])])
        return {**before, "PYTHONPATH": path}


class Line:
    """A coordinator, one site, and between them a line whose bytes are counted."""

    def __init__(self, folder: Path) -> None:
        self.machine = Loaded(folder / "machine")
        self._data = write_site(folder / "data" / SITE, samples=12)
        self._port = "0"

    async def start(self) -> None:
        """The coordinator first: the site is invited to the line's address, not to the coordinator's own."""
        await self.serve()
        self.proxy = CuttingProxy(int(self._port))
        await asyncio.to_thread(self._invite, await self.proxy.start())
        self.marks: dict[Way, Mark] = {way: self.proxy.freeze(way, MARK_BYTES) for way in WAYS}
        self.enter()

    async def serve(self) -> None:
        """Start the coordinator; the second time with the same command, at the port it had."""
        self.server = await asyncio.to_thread(self.machine.server, *COMMAND, "--port", self._port)
        await asyncio.to_thread(self.machine.wait_for, self._listening, self.server, "server")
        found = self.machine.discovery()
        assert found is not None
        self._port = found["control"].rpartition(":")[2]

    def _listening(self) -> bool:
        return "listening" in self.machine.said("server")

    def enter(self) -> None:
        """Start the site, for the first time or once more."""
        self.site = self.machine.client(self._data, "--join", self._invitation)

    async def reach(self, way: Way) -> Mark:
        """Wait until a parcel is on its way and the line stands still."""
        mark = self.marks[way]
        async with asyncio.timeout(60):
            await mark.reached.wait()
        assert 0.5 < self.proxy.passed[way] / PARCEL_BYTES < 0.7
        return mark

    async def kill(self, process: subprocess.Popen[bytes]) -> None:
        """As the system would for want of memory: without a word."""
        process.kill()
        assert -signal.SIGKILL == await asyncio.to_thread(process.wait, 10)

    async def end(self) -> None:
        """The site has taken part to the end, and the coordinator stops in good order."""
        assert 0 == await asyncio.to_thread(self.machine.finish, self.site, log=SITE)
        assert 0 == await asyncio.to_thread(self.machine.stop, self.server)

    @property
    def run(self) -> Path:
        """The coordinator's folder of the run."""
        return next((self.machine.home / "pfl-state" / "runs").iterdir())

    def audited(self) -> dict[str, object]:
        """What the site has a receipt for."""
        (book,) = self.machine.home.glob(f"state/pfl/sites/*/{SITE}/audit.jsonl")
        (found,) = [entry for entry in entries(book.parent) if entry["kind"] == "receipt"]
        return dict(found)

    @property
    def _invitation(self) -> Path:
        return self.machine.home / f"{SITE}.join"

    def _invite(self, port: int) -> None:
        assert 0 == self.machine.call("pfl", "invite", SITE).returncode
        invitation = read_join_file(self._invitation, now=datetime.now(UTC))
        addresses = replace(invitation.addresses, control=f"127.0.0.1:{port}")
        write_join_file(replace(invitation, addresses=addresses), self._invitation, replace=True)


async def cut_the_line(line: Line, way: Way) -> None:
    """Both live on and hear nothing more of each other on this line."""
    (await line.reach(way)).cut.set()


async def kill_the_site(line: Line, way: Way) -> None:
    """Its machine is gone in mid-parcel, and comes back."""
    mark = await line.reach(way)
    await line.kill(line.site)
    mark.cut.set()
    line.enter()


async def kill_the_coordinator(line: Line, way: Way) -> None:
    """The same command once more finds everything as it was."""
    mark = await line.reach(way)
    await line.kill(line.server)
    mark.cut.set()
    await line.serve()


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    """A federation of one site, up to its first parcel."""
    one = Line(tmp_path)
    try:
        await one.start()
        yield one
        await one.proxy.stop()
    finally:
        one.machine.end_all()


@pytest.mark.parametrize(
    "strike",
    # A killed site goes on as one whose line was cut does, and more in the long form.
    [cut_the_line, pytest.param(kill_the_site, marks=pytest.mark.long), kill_the_coordinator],
)
async def test_only_the_rest_crosses_again(
    line: Line, strike: Callable[[Line, Way], Awaitable[None]]
) -> None:
    """Struck at 60 % of a download and again at 60 % of an upload, all that crosses is 1.05 of a parcel each way."""
    for way in WAYS:
        await strike(line, way)
    await line.end()

    crossed = {way: line.proxy.passed[way] / PARCEL_BYTES for way in WAYS}
    print("of a parcel crossed", crossed)
    assert {} == {way: share for way, share in crossed.items() if not 1 < share <= 1.05}
    journal = Journal(line.run / "journal.sqlite")
    rounds = [
        tuple(row[name] for name in ("round", "attempt", "counted", "losses")) for row in journal.rounds()
    ]
    receipts = journal.receipts(1, 1)
    journal.close()
    assert [(1, 1, [SITE], {})] == rounds
    assert line.audited()["digest"] == receipts[SITE][0]
    assert [] == list((line.run / "incoming").iterdir())
    (checkpoint,) = (line.run / "checkpoints").glob("*.safetensors")
    assert torch.equal(torch.arange(NUMBERS).remainder(251).float() + 1, load_file(checkpoint)["load"])
