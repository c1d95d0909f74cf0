"""Measure layouts and the compiler: `python -m tests.benchmarks.training.layouts [--network cnn] [--out FILE]`.

One local epoch of FedAvg by the product: as it is, with channels last, with its encoder compiled by torch, and with
both; in turns in one process on one thread. Told are the medians of processor seconds, their ratio to the first, and
for what is compiled how many more its first epoch took and after how many epochs it has paid. It needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Literal

import torch

from pfl_client.trainer.device import settle
from pfl_common.app.allocator import keep_batches_warm
from pfl_common.learning.method import Participant
from pfl_common.models.memory_format import arrange
from pfl_common.spec.rules import MemoryFormat
from tests.benchmarks.training.measuring import NETWORKS, Case, build, train_ours
from tests.benchmarks.transport import machine

MODULE = "tests.benchmarks.training.layouts"
Way = tuple[MemoryFormat, Literal["as it is", "compiled"]]
WAYS: tuple[Way, ...] = (
    ("contiguous", "as it is"),
    ("channels-last", "as it is"),
    ("contiguous", "compiled"),
    ("channels-last", "compiled"),
)


@dataclass(frozen=True)
class Found:
    """One way through one network."""

    network: str
    memory_format: str
    code: str
    first: float
    """Seconds of its first epoch."""
    later: tuple[float, ...]

    def beside(self, usual: Found) -> dict[str, object]:
        """All of it; its ratio to the usual way, and the epochs after which its beginning has paid."""
        gain, cost = median(usual.later) - median(self.later), self.first - usual.first
        pays = round(cost / gain, 1) if gain > 0 < cost else None
        return {**asdict(self), "ratio": median(self.later) / median(usual.later), "pays_after": pays}


def main() -> int:
    """Each network asked for, a line of JSON for each way."""
    words = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    words.add_argument("--network", action="append", choices=NETWORKS, help="only this one; repeatable")
    words.add_argument("--turns", type=int, default=5, help="of each way")
    words.add_argument("--out", type=Path, help="write everything as JSON")
    said = words.parse_args()
    settle(1)
    keep_batches_warm()
    facts, rows = machine.describe(), list[dict[str, object]]()
    for name in said.network or NETWORKS:
        found = measure(name, said.turns)
        rows += [one.beside(found[0]) for one in found]
        sys.stdout.writelines(json.dumps(row) + "\n" for row in rows[-len(found) :])
    if said.out:
        said.out.write_text(json.dumps({"machine": facts, "rows": rows}, indent=1) + "\n")
    return 0


def measure(name: str, turns: int) -> list[Found]:
    """So many epochs each way, after the first."""
    case = build("fedavg", NETWORKS[name])
    made = [prepare(case, way) for way in WAYS]
    first = [epoch(case, each) for each in made]
    later: list[list[float]] = [[] for _ in WAYS]
    for turn in range(turns):
        for place in range(len(WAYS))[:: 1 if turn % 2 else -1]:
            later[place].append(epoch(case, made[place]))
    rows = zip(WAYS, first, later, strict=True)
    return [Found(name, way, code, one, tuple(others)) for (way, code), one, others in rows]


def prepare(case: Case, way: Way) -> Participant:
    """A site's half, laid out and compiled."""
    twin = copy.deepcopy(case.participant)
    arrange(twin, way[0])
    if way[1] == "compiled":
        encoder = twin.encoder
        # Not `encoder.compile()`: of a Sequential torch compiles nothing then, and does not say so.
        compiled = torch.compile(lambda x: encoder.forward(x))
        vars(encoder)["_compiled_call_impl"] = compiled
    return twin


def epoch(case: Case, participant: Participant) -> float:
    """The seconds of one epoch; the next one goes on where it ends."""
    began = process_time()
    train_ours(case, participant)
    return process_time() - began


if __name__ == "__main__":
    sys.exit(main())
