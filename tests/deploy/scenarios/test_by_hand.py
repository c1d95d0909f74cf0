"""The three terminals of the README, typed as a newcomer types them; then what an operator does while a run goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
import torch
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from safetensors import safe_open

from pfl_common.learning.method import Participant
from pfl_common.methods import build_participant
from pfl_common.spec.run import RunSpec
from pfl_common.tensors.state import State, load_into
from tests.deploy.support.processes import Machine, write_site

NAMES = ("hospital_a", "hospital_b")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test; two data folders lie where the user works."""
    place = Machine(tmp_path / "machine")
    for seed, name in enumerate(NAMES):
        write_site(place.home / name, samples=24 + 6 * seed, size=12, seed=seed)
    yield place
    place.end_all()


def sites_of(machine: Machine) -> list[Path]:
    """The folders the sites keep for their run."""
    return [next(machine.home.glob(f"state/pfl/sites/*/{name}/runs/*")) for name in NAMES]


def load_serving(run: Path) -> tuple[Participant, list[str]]:
    """The model a site serves, made from its file alone, and the names of its classes."""
    with safe_open(run / "serving" / "serving.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["pfl"])
        tensors = State({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  # no mapping
    participant = build_participant(RunSpec.from_json(json.dumps(about["spec"])))
    load_into(participant, tensors)
    return participant.eval(), about["classes"]


def test_three_terminals(machine: Machine) -> None:
    """Nothing else typed: both sites end well, each with a model that predicts as was measured; again only serves."""
    server = machine.server("--method", "dualfed")
    clients = [machine.start("pfl-client", "--data", f"./{name}", log=name) for name in NAMES]
    assert [0, 0] == [machine.finish(c, log=name) for c, name in zip(clients, NAMES, strict=True)]
    status = json.loads(machine.call("pfl", "status", "--json").stdout)
    assert ("finished", "dualfed", 30, 30) == tuple(
        status[k] for k in ("status", "method", "round", "rounds")
    )
    assert 2.0 == status["scores"]["sites"]
    before = [
        check_serving(machine.home / name, run) for name, run in zip(NAMES, sites_of(machine), strict=True)
    ]
    assert 0 == machine.stop(server)
    assert None is machine.discovery()

    server = machine.server("--method", "dualfed", log="again")
    clients = [machine.start("pfl-client", "--data", f"./{name}", log=f"{name}2") for name in NAMES]
    assert [0, 0] == [machine.finish(c, log=f"{n}2") for c, n in zip(clients, NAMES, strict=True)]
    assert "round opened" not in machine.said("again")
    assert 1 == len(list((machine.home / "pfl-state" / "runs").iterdir()))
    assert before == [(run / "serving" / "serving.safetensors").read_bytes() for run in sites_of(machine)]
    assert 0 == machine.stop(server)


def check_serving(data: Path, run: Path) -> bytes:
    """The serving model predicts the site's own test data exactly as well as its last measurement said."""
    model, classes = load_serving(run)
    test = np.load(data / "test.npz")
    with torch.no_grad():
        scores = model(torch.from_numpy(test["x"]).float().unsqueeze(1) / 255)
    names = json.loads((data / "classes.json").read_text())
    right = [classes[guess] == names[label] for guess, label in zip(scores.argmax(1), test["y"], strict=True)]
    last = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
    assert "000030-1-finish" == last["task"]
    assert last["scores"]["pre/test/combined"]["accuracy"] == pytest.approx(np.mean(right))
    assert 0.6 < np.mean(right), "three classes that can be told apart"
    return (run / "serving" / "serving.safetensors").read_bytes()


def test_while_a_run_goes_on(machine: Machine, tmp_path: Path) -> None:
    """An invited site from another machine, metrics of both programs, a site that pauses, and the end by `pfl stop`."""
    server = machine.server("--method", "dualfed", "--rounds", "100000")
    invited = machine.call("pfl", "invite", "hospital_b")
    assert (0, True) == (
        invited.returncode,
        "pfl-client --data FOLDER --join hospital_b.join" in invited.stdout,
    )
    other = Machine(tmp_path / "other")
    other.home.mkdir()
    (machine.home / "hospital_b.join").rename(other.home / "hospital_b.join")
    (machine.home / "hospital_b").rename(other.home / "scans")
    typed = ("pfl-client", "--data", "./scans", "--join", "hospital_b.join")
    try:
        here = machine.start("pfl-client", "--data", "./hospital_a", log="hospital_a")
        there = other.start(*typed, log="hospital_b")
        machine.wait_for(lambda: "round closed counted=2" in machine.said("server"), server, "server")
        check_pages(machine, discovered(machine), "pfl_round", "pfl_accuracy_ratio", "pfl_rounds")
        check_pages(machine, metrics_of(machine, "hospital_a"), "pfl_site_round", "pfl_site_accuracy_ratio")
        check_pages(other, metrics_of(other, "hospital_b"), "pfl_site_bytes", "pfl_site_connected")

        assert 0 == other.stop(there), "SIGTERM is no failure"
        there = other.start(*typed, log="hospital_b2")
        other.wait_for(lambda: "kind=train" in other.said("hospital_b2"), there, "hospital_b2")
        assert 0 == machine.call("pfl", "stop").returncode
        assert [0, 0] == [machine.finish(here, log="hospital_a"), other.finish(there, log="hospital_b2")]
    finally:
        other.end_all()
    status = json.loads(machine.call("pfl", "status", "--json").stdout)
    assert ("stopped", list(NAMES)) == (status["status"], [site["site"] for site in status["sites"]])
    assert 2 <= status["round"] < 100000
    for home, name in ((machine.home, "hospital_a"), (other.home, "hospital_b")):
        load_serving(next(home.glob(f"state/pfl/sites/*/{name}/runs/*")))
    began = monotonic()
    assert 0 == machine.stop(server)
    assert 5 > monotonic() - began, "nobody is waited for"


def discovered(machine: Machine) -> str:
    """Where the coordinator's pages are."""
    found = machine.discovery()
    assert found is not None
    return found["http"]


def metrics_of(machine: Machine, log: str) -> str:
    """Where a site's pages are: it says so when it starts."""
    found = re.search(r"metrics=(\S+)/metrics", machine.said(log))
    assert found is not None, machine.said(log)
    return found[1]


def check_pages(machine: Machine, base: str, *names: str) -> None:
    """Healthy, ready, and metrics that a strict reader of OpenMetrics takes, these among them."""
    assert ("ok\n", "ready\n") == (machine.read(f"{base}/healthz"), machine.read(f"{base}/readyz"))
    page = machine.read(f"{base}/metrics", accept="application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert [] == [name for name in names if not families[name].samples], families.keys()
    assert "process_resident_memory_bytes" in families
