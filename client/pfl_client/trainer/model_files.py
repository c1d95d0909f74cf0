"""Writes a site's models: generations for the vault, and complete models with the run they belong to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pfl_client.trainer_process.api import Measured
from pfl_common.spec.run import ClientId, Json, RunSpec
from pfl_common.tensors import safetensors_file
from pfl_common.tensors.state import State


def write_state(state: State, path: Path, about: dict[str, str] | None = None) -> None:
    """Write whole or not at all. Not synced: the daemon does that for what it commits."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as out:
        safetensors_file.write(state, out, about)
    os.replace(part, path)


def describe_model(
    spec: RunSpec,
    site: ClientId,
    *,
    validation: float | None = None,
    best: Measured | None = None,
    data: Mapping[str, Json] | None = None,
) -> dict[str, str]:
    """The metadata of a serving model; of the `best` one also its round, and how good it was. Where the site validates
    on another share than the run says, that too: whoever measures the model later divides the data alike. `data` is
    what new samples have to be prepared by.
    """
    about = {"site": site, "classes": spec.model.classes, "spec": json.loads(spec.to_json())}
    about |= {} if validation in (None, spec.validation) else {"validation": validation}
    about |= {"data": dict(data)} if data else {}
    about |= {} if best is None else {"best": asdict(best)}
    return {"pfl": json.dumps(about, sort_keys=True, separators=(",", ":"))}
