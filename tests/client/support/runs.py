"""A small real run for tests: its specification with manifests, first model, parcels and data folder."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np

from pfl_client.trainer_process.api import DataFolder, Job
from pfl_common import methods
from pfl_common.learning.method import ServerHalf
from pfl_common.randomness import generators
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from pfl_common.tensors import codec
from pfl_common.tensors.state import State, load_into
from pfl_server.run.rehearsal import rehearse

SHAPE = (1, 6, 6)
CLASSES = ("cat", "dog", "owl")


def pin_run(
    method: str = "fedavg", *, backbone: str = "mlp", **settings: Json
) -> tuple[RunSpec, State, ServerHalf]:
    """A run of three rounds: specification, first model, and the coordinator's half."""
    bare = RunSpec(
        id="run-1",
        method=method,
        settings={"batch": 8, **settings},
        model=Model(backbone, SHAPE, CLASSES),
        rounds=3,
        seed=7,
        roster=("hospital-a", "hospital-b"),
    )
    # Shapes do not depend on the number of epochs, and some tests ask for a task without an end.
    quick = dataclasses.replace(bare, settings={**bare.settings, "epochs": 1})
    template = methods.build_participant(quick)
    generators.initialise(template, bare.seed)
    found = methods.load(method)
    spec = dataclasses.replace(bare, manifests=rehearse(found, quick, template))
    return spec, State.of(template), found.build_server(spec)


def encode(state: State, spec: RunSpec, key: str) -> tuple[bytes, tuple[str, ...]]:
    """A parcel and its optional groups."""
    buffer = io.BytesIO()
    groups = codec.encode(state, spec.manifests[key], buffer)
    return buffer.getvalue(), groups


def write_arrays(folder: Path, *, train: int = 24, test: int = 8, seed: int = 3) -> Path:
    """Small grey images of three classes as arrays, without names."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("test", test)):
        y = np.arange(count) % 3
        x = draw.integers(0, 200, (count, 6, 6), dtype=np.uint8)
        x[np.arange(count), y] = 255
        np.savez(folder / f"{part}.npz", x=x, y=y)
    (folder / "classes.json").write_text('["cat", "dog", "owl"]')
    return folder


class Desk:
    """One site's folders for a run, and the jobs that can be laid on its bench."""

    def __init__(self, folder: Path, method: str = "fedavg", **settings: Json) -> None:
        self.path = folder
        self.spec, self.first, self.server = pin_run(method, **settings)
        template = methods.build_participant(self.spec)
        load_into(template, self.first)
        self.state = self.server.start(template, self.spec.seed)
        self.folder = DataFolder(write_arrays(folder / "data"), "hospital-a", device="cpu")
        self.init = folder / "init.parcel"
        self.init.write_bytes(encode(self.first, self.spec, "init")[0])

    def job(
        self,
        kind: Kind = Kind.TRAIN,
        number: int = 1,
        *,
        kept: Path | None = None,
        since: int = 0,
        **more: Path,
    ) -> Job:
        """A task of this run with its download."""
        method = methods.load(self.spec.method)
        phase = method.phase(method.settle(self.spec.settings), number, self.spec.rounds)
        task = Task(kind, number, self.spec.rounds, phase=phase, since=since)
        state = self.server.send(self.state, "hospital-a", task) if since else self.server.welcome(self.state)
        down, groups = encode(state, self.spec, f"{kind}/{phase}/down")
        return Job(task, down, groups, kept, self.path / f"kept-{number}.safetensors", **more)
