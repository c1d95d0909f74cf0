"""How many models a trainer holds at its peak: what training needs, and no copy beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import dataclasses, json, re, sys, threading
from pathlib import Path
import torch
from torch import nn
from pfl_client.trainer_process import large_parcels
from pfl_client.trainer import session
from pfl_common.tensors import mapped
from pfl_common.models import Backbone, catalogue
from pfl_common.spec.run import Kind
from tests.client.support.runs import Desk

folder = Path(sys.argv[1])
wide = lambda shape, classes: Backbone(
    nn.Sequential(nn.Flatten(), nn.Linear(36, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU()),
    nn.Linear(3000, classes),
    3000,
)
catalogue._BACKBONES["wide"] = wide
# As for a model past the limits: in files, and none kept between tasks.
mapped.LARGE = large_parcels.MESSAGE_LIMIT = 8 << 20
desk = Desk(folder, backbone="wide", momentum=float(sys.argv[2]))
first, second = desk.job(parcel_as=folder / "up"), desk.job(Kind.FINISH, 3, since=1, serve_as=folder / "serving")
def file(job):
    path = folder / f"down-{job.task.kind}"
    path.write_bytes(job.down)
    return dataclasses.replace(job, down=path)
jobs = [file(first), file(second)]
model = sum(value.nbytes for value in desk.first.values())
place, spec, init = desk.folder, desk.spec.to_json(), desk.init
del desk, first, second

over, peak = threading.Event(), 0
def look(samples=0):
    global peak
    status = Path("/proc/self/status").read_text()
    peak = max(peak, int(re.search(r"^RssAnon:\\s+(\\d+)", status, re.M)[1]) << 10)
def watch():
    while not over.wait(0.001):
        look()
threading.Thread(target=watch).start()
found, bench = {}, session.Workbench()
look()
before, peak = peak, 0
bench.open(place, spec, init)
for job in jobs:
    peak = 0
    bench.work(job, look)
    found[job.task.kind] = (peak - before) / model
over.set()
print(json.dumps(found))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux counts memory this way")
@pytest.mark.parametrize(("momentum", "held"), [(0.0, 2.4), (0.5, 3.4)])
def test_a_task_holds_the_model_and_its_gradients(tmp_path: Path, momentum: float, held: float) -> None:
    """Two models while training, three with momentum, one while finishing; parcels and the vault's files add none."""
    answer = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), str(momentum)],
        capture_output=True,
        check=True,
        text=True,
        # What is freed goes back to the system at once: only what is held is counted.
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[4]), "MALLOC_MMAP_THRESHOLD_": "1000000"},
        cwd=tmp_path,
    )
    models = json.loads(answer.stdout)
    assert held > models["train"], "models in memory of the process's own"
    assert 1.4 > models["finish"], "models in memory of the process's own"
