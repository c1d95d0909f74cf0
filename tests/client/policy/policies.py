"""Policies and runs for tests of single rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pfl_client.policy.policy_file import read
from pfl_client.policy.rules import Policy
from pfl_common.spec.manifest import Entry
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Json, Model, RunSpec

UP = "train/train/up"


def write_policy(folder: Path, text: str) -> Policy:
    """The policy that a file with this text holds."""
    file = folder / "policy.toml"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return read(file)


def pin(method: str = "fedavg", *, sites: int = 3, asks: str = "1.0", **settings: Json) -> RunSpec:
    """A run of so many sites whose updates have 10 numbers and their weight: 48 bytes."""
    manifest = (Entry("sum.w", "float32", (10,)), Entry("weight.w", "int64", ()))
    spec = RunSpec(
        "run-1",
        method,
        {"aggregation": "uniform", **settings},
        Model("mlp", (1, 4, 4), ("a", "b")),
        tuple(f"site-{number}" for number in range(sites)),
        rounds=3,
        seed=7,
        manifests={UP: manifest, "init": (Entry("w", "float32", (10,)),)},
    )
    return replace(spec, participation=Participation.parse(asks))
