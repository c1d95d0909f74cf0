"""The rehearsal finds the shape of every parcel, of every method and of one with an optional part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pfl_common import methods
from pfl_common.app import code_digest
from pfl_common.errors import SettingError
from pfl_common.learning.method import Averaging, Participant, Settings
from pfl_common.methods import Method, fedavg
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.run import ClientId, Description, Kind, RunSpec, Task
from pfl_common.tensors import codec
from pfl_common.tensors.state import State
from pfl_server.run import specification, thin_tensors
from pfl_server.run.observer import describe
from pfl_server.run.rehearsal import rehearse
from pfl_server.settings import ServerSettings
from pfl_server.store.run_store import build_template
from tests.server.support.federation import DESCRIPTION, build_spec

WEIGHTS = {"encoder.1.weight", "encoder.1.bias", "head.weight", "head.bias"}


def names(manifest: Manifest) -> set[str]:
    return {entry.name for entry in manifest}


def test_fedavg_sends_the_model_both_ways() -> None:
    """Six weights and three shifts of the encoder, six and two of the head: 17 numbers of four bytes."""
    manifests = build_spec("fedavg").manifests
    assert WEIGHTS == names(manifests["init"]) == names(manifests["train/train/down"])
    assert {f"{part}.{name}" for part in ("sum", "weight") for name in WEIGHTS} == names(
        manifests["train/train/up"]
    )
    assert 17 * 4 == codec.size_of(manifests["train/train/down"], ())
    assert 17 * 4 + 4 * 8 == codec.size_of(manifests["train/train/up"], ())
    assert {"init", "train/train/up", *(f"{kind}/train/down" for kind in Kind)} == manifests.keys()


def test_local_sends_nothing() -> None:
    """Only the first model crosses, at registration."""
    manifests = build_spec("local").manifests
    assert [0, 0, 68] == [
        codec.size_of(manifests[key], ()) for key in ("train/train/down", "train/train/up", "init")
    ]


@pytest.mark.parametrize("name", methods.names())
def test_every_method_rehearses(name: str) -> None:
    """Each file found plays its two rounds; what it sends later fits what was pinned."""
    spec = build_spec(name, rounds=3)
    for phase, _ in methods.load(name).phases(methods.load(name).settle({}), 3):
        assert {f"{kind}/{phase}/down" for kind in Kind} <= spec.manifests.keys()
        assert f"train/{phase}/up" in spec.manifests
    again = build_spec(name, rounds=3)
    assert spec.to_json() == again.to_json()


@pytest.mark.parametrize("name", methods.names())
def test_a_slim_rehearsal_finds_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thin tensors wherever there are more than four numbers, every shape of every method is the same."""
    monkeypatch.setattr(thin_tensors, "SMALL", 4)
    spec = build_spec(name, rounds=3)
    assert spec.manifests == rehearse(methods.load(name), spec, build_template(spec), slim=True)


class _WithSnapshot(Averaging):
    """Sends what it began with along, but only to a site that comes back after the first round."""

    def start(self, template: Participant, seed: int) -> State:
        own = super().start(template, seed)
        return own | own.within("snapshot")

    def welcome(self, state: State) -> State:
        return State({n: v for n, v in state.items() if not n.startswith("snapshot.")})

    def send(self, state: State, client: ClientId, task: Task) -> State:
        return state if task.round > 1 else self.welcome(state)


def test_a_part_that_is_not_always_there_is_a_group() -> None:
    """What some parcels lack is optional, as a whole branch; the rest is always there."""
    module = ModuleType("with_snapshot")
    module.Config, module.Client, module.Server = Settings, fedavg.Client, _WithSnapshot
    spec = replace(build_spec(), manifests={})
    manifest = rehearse(Method.of(module), spec, build_template(spec))["train/train/down"]
    assert {"snapshot"} == {e.group for e in manifest if e.name.startswith("snapshot.")}
    assert {""} == {e.group for e in manifest if not e.name.startswith("snapshot.")}
    assert [68, 136] == [codec.size_of(manifest, groups) for groups in ((), ("snapshot",))]


def test_the_template_is_left_alone() -> None:
    """The rehearsal trains copies: the first model that sites get is untouched by it."""
    spec = build_spec()
    template = build_template(spec)
    before = State.of(template)
    rehearse(methods.load("fedavg"), spec, template)
    assert all(torch.equal(before[name], value) for name, value in State.of(template).items())


def test_a_large_model_is_rehearsed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, which takes its memory along, the shapes are found to be the same."""
    settings = ServerSettings(method="fedcac", backbone="mlp", state=tmp_path)
    sites = {"a": DESCRIPTION, "b": DESCRIPTION}
    here = specification.freeze(settings, sites, run="run-1")
    monkeypatch.setattr(specification, "REHEARSED_HERE", 0)
    assert here == specification.freeze(settings, sites, run="run-1")


def test_a_run_is_pinned_to_its_data_and_to_the_code(tmp_path: Path) -> None:
    """The fingerprints of the sites that gave one, and the digest of the product's own files."""
    settings = ServerSettings(method="fedavg", backbone="mlp", state=tmp_path)
    sites = {"b": replace(DESCRIPTION, data="0b"), "a": replace(DESCRIPTION, data="0a"), "c": DESCRIPTION}
    spec = specification.freeze(settings, sites, run="run-1")
    assert {"a": "0a", "b": "0b"} == spec.data
    assert code_digest.digest() == spec.versions["code"]
    assert spec == RunSpec.from_json(spec.to_json())


def test_what_was_chosen_by_the_data_is_a_fact_of_the_run(tmp_path: Path) -> None:
    """It stands in the specification, and among what people see of it."""
    picture = Description((3, 10, 400), ("a", "b"), 6, sizes=((10, 400, 6),), high=255)
    settings = ServerSettings(method="fedavg", backbone="mlp", state=tmp_path)
    spec = specification.freeze(settings, {"a": picture, "b": picture}, run="run-1")
    for size in ("6x224", "10x400"):
        assert size in spec.chosen["image size"]
    assert spec.chosen == describe(spec)["chosen"]


def test_a_layout_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    """A network without convolutions; with some it is a rule of the run, which still promises its bits."""
    sites = {name: Description((1, 16, 16), ("a", "b"), 24) for name in ("x", "y")}
    words = {"method": "fedproto", "state": tmp_path, "memory_format": "channels-last"}
    with pytest.raises(SettingError, match="mlp"):
        specification.freeze(ServerSettings(backbone="mlp", **words), sites, run="run-1")
    spec = specification.freeze(ServerSettings(backbone="cnn", **words), sites, run="run-1")
    assert ("channels-last", True) == (spec.memory_format, spec.repeatable)
    assert spec == RunSpec.from_json(spec.to_json())


@pytest.mark.parametrize(
    ("rules", "repeatable"),
    [
        ({}, True),
        ({"threads": 2}, False),
        ({"precision": "bfloat16"}, False),
        ({"precision": "float16"}, False),
    ],
)
def test_what_a_run_promises(rules: dict[str, Any], repeatable: bool) -> None:
    """Equal bits with one thread and in float32 alone; what travels has the same types in every precision."""
    sites = {name: Description((1, 6, 6), ("a", "b"), 24) for name in ("x", "y")}
    plain = specification.freeze(ServerSettings(method="fedproto", backbone="mlp"), sites, run="run-1")
    spec = specification.freeze(
        ServerSettings(method="fedproto", backbone="mlp", **rules), sites, run="run-1"
    )
    assert repeatable == spec.repeatable
    assert plain.manifests == spec.manifests
