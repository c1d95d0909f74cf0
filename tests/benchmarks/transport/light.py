"""Many sites in one process: real daemons with identities and lines of their own, and no trainers.

    python light.py --first 0 --count 125

Everything between coordinator and daemon is the product's; only the bench on which a task is laid is replaced by one
that changes a byte. So a thousand sites fit on a machine, and the coordinator sees what a thousand would send.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import struct
from pathlib import Path

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.onboarding import enrolment
from pfl_client.trainer_process.api import DataFolder, Done, Job, Parcel, Progress
from pfl_common.app import logs
from pfl_common.evaluation import vector
from pfl_common.identity import Found, Keyring, discovery
from pfl_common.spec.manifest import Entry
from pfl_common.spec.run import Description, Kind, RunSpec

NO_TENSORS = struct.pack("<Q", 2) + b"{}"
"""A safetensors file that holds nothing: what the vault of a site without personal state keeps."""
SAMPLES = 4
BLOCK = 16 << 20
"""A large update is written in such parts, and each is told as progress: a real trainer tells its samples."""
AT_ONCE = 2
"""Enrolments under way together from one process: the coordinator refuses when too many come at a time."""


class LightBench:
    """A trainer that trains nothing and is not there."""

    async def describe(self, folder: DataFolder) -> Description:
        """What the data would look like."""
        return Description(shape=(4,), classes=("a", "b"), samples=SAMPLES, kind="array")

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Learn how an update is written."""
        entries = RunSpec.from_json(spec).manifest(Kind.TRAIN, "train", "up")
        self._weights = b"".join(_weight(entry) for entry in entries if entry.name.startswith("weight."))

    async def work(self, job: Job, progress: Progress) -> Done:
        """Send back what came, changed in one byte."""
        if job.task.kind is not Kind.EVALUATE:
            job.keep_as.write_bytes(NO_TENSORS)
        if job.serve_as is not None:
            job.serve_as.write_bytes(NO_TENSORS)
        scores = {"post/test/combined": vector(1, 2, 0.7)}
        up = await self._answer(job, progress) if job.task.kind is Kind.TRAIN else None
        return Done(scores, up=up)

    async def _answer(self, job: Job, progress: Progress) -> Parcel:
        """The update: in its manifest sums come first, in the order of the download, then their weights."""
        if not isinstance(job.down, Path):
            plain = bytearray(job.down)
            plain[0] ^= 1
            return bytes(plain + self._weights)
        assert job.parcel_as is not None
        with job.down.open("rb") as down, job.parcel_as.open("wb") as up:
            first = down.read(1)
            up.write(bytes([first[0] ^ 1]))
            while block := await asyncio.to_thread(down.read, BLOCK):
                await asyncio.to_thread(up.write, block)
                progress(1)
            up.write(self._weights)
        return job.parcel_as

    async def close(self) -> None:
        """Nothing to end."""


def _weight(entry: Entry) -> bytes:
    if (entry.dtype, entry.shape) != ("int64", ()):
        raise ValueError(
            f"{entry.name} is {entry.dtype}{entry.shape}: this bench writes one int64 per tensor"
        )
    return struct.pack("<q", SAMPLES)


async def take_part(found: Found, name: str, place: Path, turn: asyncio.Semaphore) -> None:
    """One site from its enrolment to the end of the run."""
    keyring = Keyring.open(place / "keys")
    async with turn:
        await enrolment.enrol_same_user(keyring, found, name)
    async with GrpcLink(found.addresses.control, keyring) as link:
        folder = DataFolder(place, name)
        envelopes = SealedEnvelopes(keyring)
        await Daemon(folder, link=link, bench=LightBench(), envelopes=envelopes, state=place).run()


async def visit(first: int, count: int) -> None:
    """So many sites, until they are told to stop."""
    found, turn = await asyncio.to_thread(discovery.find, None), asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for number in range(first, first + count):
            name = f"site_{number:04d}"
            place = Path("light") / name
            place.mkdir(parents=True, mode=0o700)
            group.create_task(take_part(found, name, place, turn))


def main() -> None:
    """Read the words and visit."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--first", type=int, required=True)
    words.add_argument("--count", type=int, required=True)
    said = words.parse_args()
    logs.configure("json", level="warning")
    # Nothing here outlives the measurement: who stops it wants it gone.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(visit(said.first, said.count))


if __name__ == "__main__":
    main()
