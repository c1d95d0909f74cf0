"""Measure a coordinator that keeps single models: `python -m tests.benchmarks.single_models [--sites 100]`.

For FedAMP, FedFomo and FedCAC: seconds and memory of closing a round and of one site's reply. The updates are sealed
files as real sites send them, read as the coordinator's spool reads them; each method has a process of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from pfl_common import methods
from pfl_common.app.allocator import keep_frames_warm
from pfl_common.learning.method import Arrivals, LocalData, Participant, Samples
from pfl_common.randomness import generators
from pfl_common.spec.messages import header_up
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from pfl_common.tensors import codec
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import flatten
from pfl_server.envelopes.sealed import seal_with
from pfl_server.run.rehearsal import rehearse
from pfl_server.store.spool import Update
from tests.common.sealing.members import Members, offer_of

SETTINGS: dict[str, dict[str, Json]] = {
    # So wide that each model has a weight in each mix: the most there can be to read.
    "fedamp": {"alpha_k": 1e7, "sigma": 1e9},
    "fedcac": {},
    "fedfomo": {},
}
SEED = 5


@dataclass(frozen=True)
class Step:
    """What one step takes; memory beyond what was there before it, at its peak."""

    method: str
    step: str
    seconds: float
    peak_mb: float
    peak_models: float


def main() -> int:
    """Each method in a process of its own, or one of them in this one."""
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.single_models")
    words.add_argument("--sites", type=int, default=100, help="how many sites have sent a model; 100")
    words.add_argument("--backbone", default="resnet8", help="resnet8 has 1.24 million parameters")
    words.add_argument("--method", choices=sorted(SETTINGS), help="only this one, in this process")
    given = words.parse_args()
    if given.method:
        for step in measure(given.method, given.sites, given.backbone):
            sys.stdout.write(json.dumps(asdict(step)) + "\n")
        return 0
    ends = []
    for name in sorted(SETTINGS):
        asked = ["--sites", str(given.sites), "--backbone", given.backbone, "--method", name]
        command = [sys.executable, "-m", "tests.benchmarks.single_models", *asked]
        ends.append(subprocess.run(command, check=False).returncode)
    return max(ends)


def measure(name: str, sites: int, backbone: str) -> list[Step]:
    """Close a round of all sites, answer one of them and a newcomer, close a round of a tenth of them."""
    torch.set_num_threads(1)
    keep_frames_warm()
    spec, template = build(name, sites, backbone)
    half = methods.load(name).build_server(spec)
    nbytes = sum(
        value.nbytes
        for value in [*template.encoder.parameters(), *template.get_submodule("head").parameters()]
    )
    steps: list[Step] = []

    def take(step: str, work: Callable[[], object]) -> object:
        before, began = reset_peak(), time.perf_counter()
        result = work()
        seconds, peak = time.perf_counter() - began, read_memory("VmHWM") - before
        steps.append(Step(name, step, round(seconds, 2), round(peak / 1e6, 1), round(peak / nbytes, 1)))
        return result

    with tempfile.TemporaryDirectory() as folder:
        everybody = write_updates(Path(folder), spec, template, spec.roster, number=1)
        few = write_updates(Path(folder), spec, template, spec.roster[: max(1, sites // 10)], number=2)
        first, second = (Task(Kind.TRAIN, number, 9, since=number - 1) for number in (1, 2))
        start = half.start(template, SEED)
        take("read one update", lambda: everybody[spec.roster[0]].load())
        state = take(
            "close a round of all", lambda: half.close(start, Arrivals(Sum(), everybody), first).state
        )
        assert isinstance(state, State)
        take("reply to a site", lambda: half.send(state, spec.roster[0], second))
        take("reply to a new site", lambda: half.welcome(state))
        take("close a round of a tenth", lambda: half.close(state, Arrivals(Sum(), few), second).state)
    return steps


def build(name: str, sites: int, backbone: str) -> tuple[RunSpec, Participant]:
    """A run of so many sites, with the shapes of its parcels."""
    roster = tuple(f"site-{number:03d}" for number in range(sites))
    model = Model(backbone, (3, 32, 32), tuple("abcdefghij"))
    spec = RunSpec("run-1", name, SETTINGS[name], model, rounds=9, seed=SEED, roster=roster)
    template = methods.build_participant(spec)
    generators.initialise(template, SEED)
    return replace(spec, manifests=rehearse(methods.load(name), spec, template)), template


def write_updates(
    folder: Path, spec: RunSpec, template: Participant, sites: tuple[str, ...], *, number: int
) -> dict[str, Update]:
    """A sealed update of each site, with numbers of its own."""
    members = Members(folder / f"federation-{number}")
    envelopes = seal_with(members.authority, now=datetime.now(UTC))
    task, manifest = Task(Kind.TRAIN, number, 9), spec.manifest(Kind.TRAIN, "train", "up")
    nothing = Samples(torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64))
    sample = template.report(LocalData(nothing, nothing, nothing, 10, "x", SEED), task)
    updates = {}
    for site in sites:
        plain, file = folder / "plain", folder / f"update-{number}-{site}"
        with plain.open("wb") as out:
            groups = codec.encode(made_up(flatten(sample), site, number), manifest, out)
        header = replace(header_up(spec, task, site, state=spec.hash), groups=groups)
        keys = members.keyring(site).envelope_keys()
        offer, _ = offer_of(
            keys, plain.read_bytes(), header=header, task=task, to=members.coordinator, file=file
        )
        updates[site] = Update(file.name, file, header, manifest, envelopes.keep(offer))
    return updates


def made_up(update: State, site: str, number: int) -> State:
    """The same shapes, other numbers."""
    chance = generators.generator(site, number)

    def change(value: torch.Tensor) -> torch.Tensor:
        if value.is_floating_point():
            return value + 0.01 * torch.randn(value.shape, generator=chance)
        return torch.randint(1, 255, value.shape, generator=chance).to(value.dtype)

    return update.apply(change)


def reset_peak() -> int:
    """Forget the highest memory so far, and what was used before and is kept for later; gives what is used now."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return read_memory("VmRSS")


def read_memory(word: str) -> int:
    """A line of what the kernel knows of this process, in bytes."""
    found = re.search(rf"{word}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    sys.exit(main())
