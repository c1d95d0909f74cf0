"""A trainer that is not there, whose numbers follow from all that its site was ever sent."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from pathlib import Path

import numpy as np

from pfl_client.trainer_process.api import Done, Job, Progress
from pfl_common.spec.run import Kind, RunSpec
from tests.benchmarks.transport.light import LightBench

SCALE = 0.01
"""Of what it adds to each number that it was sent."""
STEPS = 4


class SteadyBench(LightBench):
    """Works for a while, keeps a digest of its past as its own state, and sends numbers drawn from that digest. So two
    runs end alike at a site only if it was sent the same in every round.
    """

    def __init__(self, site: str, seconds: float) -> None:
        self._site, self._seconds = site, seconds

    async def open(self, folder: object, spec: str, init: Path) -> None:
        """Learn how an update is written; where all sites count alike, its weights are 1."""
        await super().open(folder, spec, init)  # type: ignore[arg-type]  # it is not looked at
        if RunSpec.from_json(spec).settings.get("aggregation") == "uniform":
            self._weights = struct.pack("<q", 1) * (len(self._weights) // 8)

    async def work(self, job: Job, progress: Progress) -> Done:
        """Take as long as it was told to, then answer."""
        for _ in range(STEPS):
            await asyncio.sleep(self._seconds / STEPS)
            progress(1)
        self._past = self._digest(job)
        done = await super().work(job, progress)
        for file in (job.keep_as if job.task.kind is not Kind.EVALUATE else None, job.serve_as):
            if file is not None:
                file.write_bytes(_as_tensor(self._past))
        return done

    async def _answer(self, job: Job, progress: Progress) -> bytes:
        assert not isinstance(job.down, Path), "a model this small comes as bytes"
        values = np.frombuffer(job.down, dtype="<f4").copy()
        drawn = np.random.default_rng(int.from_bytes(self._past[:8], "little"))
        values += (SCALE * drawn.standard_normal(len(values))).astype("<f4")
        return bytes(values.tobytes() + self._weights)

    def _digest(self, job: Job) -> bytes:
        kept = job.kept.read_bytes() if job.kept else b""
        down = job.down.read_bytes() if isinstance(job.down, Path) else bytes(job.down)
        said = f"{self._site} {job.task.key}".encode()
        return hashlib.sha256(b"\0".join((said, kept, down))).digest()


def _as_tensor(content: bytes) -> bytes:
    """A safetensors file with one tensor of bytes."""
    end = len(content)
    head = f'{{"past":{{"dtype":"U8","shape":[{end}],"data_offsets":[0,{end}]}}}}'.encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + content
