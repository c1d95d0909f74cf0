"""Measure the memory of a rehearsal: `python -m tests.benchmarks.rehearsal [METHOD ...] [--backbone NAME]`.

The coordinator plays a round before the run to learn the shapes of all parcels. Told is the most memory that it takes
for that, as the kernel saw it (VmHWM), above what the process held before, in models: a model is all that a site of
this method holds. Each method has a process of its own. It needs no quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from pfl_common import methods
from pfl_common.app.allocator import give_memory_back
from pfl_common.models.without_numbers import without_numbers
from pfl_common.randomness import generators
from pfl_common.spec.run import Model, RunSpec
from pfl_server.run.memory_estimate import COPIES
from pfl_server.run.rehearsal import rehearse_whole
from tests.benchmarks.single_models import read_memory, reset_peak

MODULE = "tests.benchmarks.rehearsal"


@dataclass(frozen=True)
class Rehearsed:
    """What one rehearsal took."""

    method: str
    backbone: str
    model_mb: float
    peak_models: float
    cpu_seconds: float


def main() -> int:
    """Each method in a process of its own, or one of them in this one."""
    words = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    words.add_argument("methods", nargs="*", metavar="METHOD", help="only these; otherwise all of them")
    words.add_argument("--backbone", default="torchvision:wide_resnet50_2", help="68.9 million numbers")
    words.add_argument("--side", type=int, default=64, help="of the pictures")
    words.add_argument("--here", action="store_true", help="in this process, one after the other")
    given = words.parse_args()
    chosen = given.methods or list(methods.names())
    if given.here:
        for name in chosen:
            tell(measure(name, given.backbone, given.side))
        return 0
    shape = ("--backbone", given.backbone, "--side", str(given.side), "--here")
    commands = [[sys.executable, "-m", MODULE, name, *shape] for name in chosen]
    return max(subprocess.run(command, check=False).returncode for command in commands)


def measure(name: str, backbone: str, side: int) -> Rehearsed:
    """Rehearse a method on a network, in this process."""
    generators.pin_threads(1)
    give_memory_back()
    # What is loaded when it is first used belongs to no model.
    rehearse_whole(pin(name, "torchvision:resnet18", 32))
    spec = pin(name, backbone, side)
    with without_numbers():
        empty = methods.build_participant(spec)
    size = sum(value.nbytes for value in empty.state_dict().values())
    before, began = reset_peak(), time.process_time()
    rehearse_whole(spec)
    seconds, peak = time.process_time() - began, read_memory("VmHWM") - before
    return Rehearsed(name, backbone, round(size / 1e6, 1), round(peak / size, 2), round(seconds, 2))


def pin(name: str, backbone: str, side: int) -> RunSpec:
    """A run of this method on pictures of this size."""
    model = Model(backbone, (3, side, side), tuple("abcdef"))
    return RunSpec("run-1", name, {}, model, ("a",), rounds=9, seed=5)


def tell(found: Rehearsed) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps({**asdict(found), "met": found.peak_models <= COPIES}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
