"""A site behind a real nginx that ends TLS, enrolment included: approved by hand, confidential, removed at the end."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from pfl_common.errors import PflError
from pfl_common.identity import Authority
from tests.deploy.support.nginx import NGINX, Nginx, free_port
from tests.deploy.support.processes import Machine, write_site

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: nginx-light)")
NAME = "hospital_a"
PASSPHRASE = "correct horse battery staple"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """The coordinator's machine, with its keys on another volume, locked."""
    place = Machine(tmp_path / "coordinator")
    (place.home / "volume").mkdir(parents=True, mode=0o700)
    words = place.home / "words"
    words.touch(mode=0o600)
    words.write_text(PASSPHRASE + "\n")
    yield place
    place.end_all()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Machine]:
    """The site's machine."""
    place = Machine(tmp_path / "site")
    write_site(place.home / NAME, samples=24, size=12)
    yield place
    place.end_all()


@pytest.fixture
def started(machine: Machine, tmp_path: Path) -> Iterator[Nginx]:
    """A coordinator that hides everything it can, and nginx before it."""
    port = free_port()
    machine.server(
        *("--method", "fedavg", "--sites", "1", "--quorum", "1", "--rounds", "2", "--approve"),
        *("--advertise", f"localhost:{port}", "--proxied", "127.0.0.1/32", "--envelope", "hybrid"),
        *("--keys", "volume", "--passphrase", "words"),
    )
    found = machine.discovery() or {}
    at = {name: int(found[name].rpartition(":")[2]) for name in ("control", "enrolment")}
    one = Nginx(tmp_path / "nginx", port, **at, federation_ca=found["ca"].encode())
    yield one
    one.stop()


def status(machine: Machine) -> dict[str, Any]:
    """What the coordinator says of its run."""
    return json.loads(machine.read(f"{(machine.discovery() or {})['http']}/status.json"))


def test_a_site_behind_nginx(machine: Machine, outside: Machine, started: Nginx) -> None:
    """It enrols, waits, is approved, trains and is removed; nginx sees its name and no number of the model."""
    invited = machine.call("pfl", "invite", NAME)
    assert 0 == invited.returncode, invited.stderr
    join = outside.home / f"{NAME}.join"
    (machine.home / f"{NAME}.join").rename(join)
    typed = ("--join", join, "--proxy-ca", started.ca, "--stay")
    site = outside.client(outside.home / NAME, *typed)
    outside.wait_for(lambda: "waiting for the operator's approval" in outside.said(NAME), site, NAME)
    keys = re.search(r"fingerprint='([0-9a-f ]+)'", outside.said(NAME))
    assert {NAME: keys and keys[1]} == status(machine)["waiting"]
    approved = machine.call("pfl", "approve", NAME, "--fingerprint", str(keys and keys[1]))
    assert (0, True) == (approved.returncode, str(keys and keys[1]) in approved.stdout), approved.stderr
    outside.wait_for(lambda: status(machine)["status"] == "finished", site, NAME)
    check_what_nginx_saw(bytes(started.tap.seen), outside)
    check_stolen_state(machine)

    removed = machine.call("pfl", "remove", NAME)
    assert (0, True) == (removed.returncode, NAME in removed.stdout), removed.stderr
    assert 2 == outside.finish(site, log=NAME)
    assert "removed" in outside.said(NAME)
    assert "removed by the operator" in json.dumps(status(machine))


def check_what_nginx_saw(seen: bytes, outside: Machine) -> None:
    """It had everything open that TLS protects: names and requests, but none of the model's numbers."""
    assert b"BEGIN CERTIFICATE REQUEST" in seen
    assert NAME.encode() in seen
    served = next(outside.home.glob(f"state/pfl/sites/*/{NAME}/runs/*/serving/serving.safetensors"))
    with safe_open(served, framework="pt") as file:
        tensors = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118  # no mapping
    canaries = [tensor.numpy().tobytes()[:48] for tensor in tensors if tensor.numel() >= 12]
    assert canaries
    assert [] == [canary for canary in canaries if canary in seen]
    assert not any(PASSPHRASE.encode() in content for content in (seen, outside.said(NAME).encode()))


def check_stolen_state(machine: Machine) -> None:
    """A copy of the state folder has no key in it that anybody could use: the authority does not open."""
    stolen = Path(shutil.copytree(machine.home / "pfl-state", machine.home / "stolen"))
    held = [path for path in stolen.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert [] == held
    with pytest.raises(PflError):
        Authority.open(stolen / "federation")
    volume = sorted(path.name for path in (machine.home / "volume").iterdir() if path.name[0] != ".")
    assert ["authority.pem.locked", "coordinator.seal.locked"] == volume
