"""The files in a run's folder that a run needs which begins from another: no other folder is read once it has begun.

begun/first_model.safetensors      every site's first model: that of the first run of the line
begun/round-000000.safetensors     the state before round 1, and its note, as any checkpoint
begun/committed.json               rounds of the other run by which a site's own state of it counts
spool/RUN~….raw, .json             updates of that run which the state refers to
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file

from pfl_common.errors import StateError
from pfl_common.learning.method import Participant
from pfl_common.tensors.state import State, load_into
from pfl_server.store.checkpoints import Checkpoints
from pfl_server.store.spool import Spool

FOLDER, FIRST_MODEL, COMMITTED = "begun", "first_model.safetensors", "committed.json"


def load_first_model(run: Path, template: Participant) -> None:
    """Put a template where every site of this line of runs has started."""
    load_into(template, load_file(run / FOLDER / FIRST_MODEL))


def load_first_state(run: Path, spool: Spool) -> State:
    """The state before round 1."""
    found = Checkpoints(run / FOLDER, spool).load(upto=0)
    if found is None:
        raise StateError(
            f"the state that run {run.name} began with, in {run / FOLDER}, is damaged",
            expected="the file as it was written when the run began",
            advice="restore the run's folder from a backup, or begin another run: --new-run with another --seed",
        )
    return found[1]


def load_committed(run: Path) -> dict[int, int]:
    """The other run's committed rounds and their attempts; none if this run began from no other."""
    file = run / FOLDER / COMMITTED
    if not file.exists():
        return {}
    return {int(number): attempt for number, attempt in json.loads(file.read_text()).items()}
