"""Measure training on data larger than the trainer's memory: `python -m tests.benchmarks.large_data [--limit 512M]`.

One site's trainer, a process of its own, trains on pictures of floats: once held to `--limit`, with its samples in the
cache on the disk, and once without a limit, with all of them in memory. Epochs alternate, so that both see the same
machine. Told are seconds to open and to train, their ratio, and whether the updates are equal to the byte.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from pfl_client.settings import read_size
from pfl_client.trainer_process.api import DataFolder, Job
from pfl_client.trainer_process.process import TrainerProcess
from pfl_common import methods
from pfl_common.learning.method import Participant
from pfl_common.randomness import generators
from pfl_common.spec.run import Kind, Model, RunSpec, Task
from pfl_common.tensors.state import State
from pfl_server.run.rehearsal import rehearse
from tests.client.support.runs import encode

SHAPE = (3, 32, 32)
BYTES = 4 * int(np.prod(SHAPE))
"""Of one sample: floats, so that there is much to read beside little to compute."""
CLASSES = ("cat", "dog")
AT_ONCE = 1024


@dataclass(frozen=True)
class Found:
    """What both ways took."""

    data_bytes: int
    limit_bytes: int
    open_seconds: tuple[float, float]
    """With the cache, which is filled then, and in memory."""
    train_seconds: tuple[list[float], list[float]]
    """Of each epoch."""
    train_cpu_seconds: tuple[list[float], list[float]]
    """What the trainer computed and waited for the system in it: also on a busy machine what it costs."""
    equal: bool
    """Whether both made the same updates."""

    @property
    def ratio(self) -> float:
        """Of the fastest epochs."""
        cached, in_memory = self.train_seconds
        return min(cached) / min(in_memory)

    @property
    def cpu_ratio(self) -> float:
        """The same of the processor's time."""
        cached, in_memory = self.train_cpu_seconds
        return min(cached) / min(in_memory)


def main() -> int:
    """Measure, and print the figures as JSON."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--limit", default="512M", help="the trainer's memory")
    asked.add_argument("--times", type=float, default=4.0, help="how many times as much the data are")
    asked.add_argument("--epochs", type=int, default=2)
    asked.add_argument(
        "--backbone", default="cnn", help="with a cheap one, reading samples is most of the work"
    )
    asked.add_argument("--folder", type=Path, help="where to write, if not in a temporary folder")
    given = asked.parse_args()
    limit = read_size(given.limit)
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        found = asyncio.run(
            measure(
                Path(place),
                limit,
                samples=int(given.times * limit) // BYTES,
                epochs=given.epochs,
                backbone=given.backbone,
            )
        )
    ratios = {"ratio": round(found.ratio, 3), "cpu_ratio": round(found.cpu_ratio, 3)}
    print(json.dumps({**ratios, **asdict(found)}, indent=1))
    return 0


async def measure(folder: Path, limit: int, *, samples: int, epochs: int, backbone: str) -> Found:
    """Train some epochs in both ways."""
    held = DataFolder(write(folder / "data", samples), "large", device="cpu")
    cached = replace(held, cache=folder / "cache", cache_bytes=64 << 30, in_memory=1 << 20)
    ways = {
        cached: TrainerProcess(folder / "held", memory_limit=limit),
        held: TrainerProcess(folder / "free"),
    }
    spec, first = pin(backbone)
    init = folder / "init.parcel"
    init.write_bytes(encode(first, spec, "init")[0])
    opened, trained, spent, ups = [], *({way: [] for way in ways} for _ in range(3))
    try:
        for way, trainer in ways.items():
            began = perf_counter()
            await trainer.open(way, spec.to_json(), init)
            opened.append(perf_counter() - began)
        for number in range(1, epochs + 1):
            for way, trainer in ways.items():
                before = cpu_seconds(trainer)
                done = await trainer.work(job(folder, spec, first, number), lambda samples: None)
                trained[way].append(done.seconds["train"])
                spent[way].append(cpu_seconds(trainer) - before)
                ups[way].append(bytes(done.up))
    finally:
        for trainer in ways.values():
            await trainer.close()
    same = ups[cached] == ups[held]
    return Found(samples * BYTES, limit, tuple(opened), tuple(trained.values()), tuple(spent.values()), same)


def cpu_seconds(trainer: TrainerProcess) -> float:
    """What a trainer has used so far."""
    words = Path(f"/proc/{trainer.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def write(folder: Path, samples: int) -> Path:
    """Pictures of two classes, written block by block."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(7)
    for part, count in (("train", samples), ("test", 16)):
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, *SHAPE)}
        with zipfile.ZipFile(folder / f"{part}.npz", "w") as archive:
            with archive.open("x.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, header)
                for start in range(0, count, AT_ONCE):
                    shape = (min(AT_ONCE, count - start), *SHAPE)
                    file.write(draw.random(shape, dtype=np.float32).tobytes())
            with archive.open("y.npy", "w") as file:
                np.lib.format.write_array(file, np.arange(count) % len(CLASSES))
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    return folder


def pin(backbone: str) -> tuple[RunSpec, State]:
    """A run over such pictures, and its first model; nothing is measured but training."""
    bare = RunSpec(
        id="large",
        method="fedavg",
        settings={"batch": 32, "diagnose": False, "eval_point": "post"},
        model=Model(backbone, SHAPE, CLASSES, values="unit", high=1.0, kind="image"),
        rounds=99,
        seed=7,
        roster=("large",),
    )
    template: Participant = methods.build_participant(bare)
    generators.initialise(template, bare.seed)
    spec = replace(bare, manifests=rehearse(methods.load("fedavg"), bare, template))
    return spec, State.of(template)


def job(folder: Path, spec: RunSpec, first: State, number: int) -> Job:
    """A round of training from the first model."""
    key = "train/train/down"
    down, groups = encode(first.only(entry.name for entry in spec.manifests[key]), spec, key)
    return Job(Task(Kind.TRAIN, number, 99), down, groups, None, folder / "kept.safetensors")


if __name__ == "__main__":
    sys.exit(main())
