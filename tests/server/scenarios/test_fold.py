"""The fold through the spool: equal to plain numpy to the bit, and no larger for more sites."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.decisions.round import Arrived, Fold, Round
from pfl_server.store.spool import Spool
from pfl_server.store.tallies import PlainTally
from tests.server.support.federation import build_header, build_offer, build_spec, make_update, write_parcel

TASK = Task(Kind.TRAIN, 1, 2)
SITES = tuple("abcdefg")


def admit(spool: Spool, spec, site: str, update: State, folder: Path) -> str:
    file = folder / f"up-{site}"
    header = build_header(spec, site, TASK, write_parcel(file, spec, update))
    return spool.admit(site, file, build_offer(header, file))


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_numpy_to_the_bit_for_any_arrival(tmp_path: Path, seed: int) -> None:
    """Updates that arrive shuffled are folded in site order: totals, weights and means are numpy's."""
    spec = build_spec(sites=SITES)
    spool, updates = (
        Spool(tmp_path / "spool", spec, OpenEnvelopes()),
        {s: make_update(spec, s, "round") for s in SITES},
    )
    round_, tally = Round(SITES, quorum=1), PlainTally(spool)
    for place in np.random.default_rng(seed).permutation(len(SITES)):
        site = SITES[place]
        for order in round_.handle(Arrived(site, admit(spool, spec, site, updates[site], tmp_path))):
            if isinstance(order, Fold):
                tally.add(order.client, order.id)
    arrivals = tally.arrivals()
    assert set(SITES) == set(arrivals.shown)
    for name, total in arrivals.total.totals.items():
        wanted, weights = np.zeros(total.shape), np.zeros(())
        for site in SITES:
            weight = updates[site][f"weight.{name}"].numpy().astype(np.float64)
            wanted = wanted + updates[site][f"sum.{name}"].numpy().astype(np.float64) * weight
            weights = weights + weight
        assert wanted.tobytes() == total.numpy().tobytes()
        assert weights.tobytes() == arrivals.total.weights[name].numpy().tobytes()
        mean = arrivals.total.mean(State({name: torch.zeros(total.shape)}))[name]
        assert (wanted / weights).astype(np.float32).tobytes() == mean.numpy().tobytes()


MEASURE = """
import re, sys
from pathlib import Path
import torch
from pfl_common.tensors import layout
from pfl_common.spec.manifest import Entry
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.store.spool import Spool
from pfl_server.store.tallies import PlainTally
from tests.server.support.federation import build_header, build_offer, pin_spec, write_parcel
torch.set_num_threads(1)
folder, sites = Path(sys.argv[1]), int(sys.argv[2])
spec = pin_spec((Entry("sum.w", "float32", (5 << 20,)), Entry("weight.w", "int64", ())))
spool, task = Spool(folder / "spool", spec, OpenEnvelopes()), Task(Kind.TRAIN, 1, 2)
value, file = torch.randn(5 << 20), folder / "up"
write_parcel(file, spec, State({"sum.w": value, "weight.w": torch.tensor(3)}))
del value
offer = build_offer(build_header(spec, "a", task), file)
name = spool.admit("a", file, offer)
def anonymous():
    return int(re.search(r"^RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text(), re.M)[1])
peak, take = 0, layout.Window.take
def watched(window, *place):
    global peak
    block = take(window, *place)
    peak = max(peak, anonymous())
    return block
layout.Window.take = watched
tally, before, peaks = PlainTally(spool), anonymous(), []
for number in range(sites):
    tally.add(f"s{number:03d}", name)
    peaks.append(peak - before)
print(peaks[1], peaks[-1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux counts memory this way")
def test_memory_does_not_grow_with_sites(tmp_path: Path) -> None:
    """Fifty updates of 20 MB need no more memory of their own than two do: the total and a few warm blocks."""
    answer = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), "50"],
        capture_output=True,
        check=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=tmp_path,
    )
    of_two, of_fifty = (int(word) for word in answer.stdout.split())
    assert 2_000 > of_fifty - of_two, "kilobytes beyond the peak of two updates"
    assert 40_960 + 12_000 > of_fifty, "the total in float64, and blocks"
