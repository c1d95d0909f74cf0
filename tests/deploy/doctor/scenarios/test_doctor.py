"""`pfl doctor` beside a real coordinator and a real site, and beside what is left of them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pfl_common.identity import Authority, Keyring, discovery
from tests.deploy.support.processes import Machine, write_site


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a coordinator, a site at work, and an invitation for another."""
    machine = Machine(tmp_path_factory.mktemp("doctor"))
    server = machine.server("--sites", "99")
    site = machine.client(write_site(machine.home / "hospital_a", samples=12))
    machine.wait_for(lambda: "hospital_a" in str(sites_of(machine)), site, "hospital_a")
    assert 0 == machine.call("pfl", "invite", "hospital_b").returncode
    assert server.poll() is None
    yield machine
    machine.end_all()


def sites_of(machine: Machine) -> list[str]:
    """Who has registered."""
    said = machine.call("pfl", "status", "--json")
    return [line["site"] for line in json.loads(said.stdout)["sites"]] if said.returncode == 0 else []


def ask(machine: Machine, *words: str | Path) -> tuple[int, list[dict[str, Any]]]:
    """The doctor's findings, and its exit code."""
    said = machine.call("pfl", "doctor", "--json", *words)
    assert "Traceback" not in said.stderr, said.stderr
    told = json.loads(said.stdout)
    assert said.returncode == told["exit_code"]
    assert all(check["advice"] for check in told["checks"] if check["level"] == "error"), told
    return said.returncode, told["checks"]


def words_of(checks: list[dict[str, Any]], about: str, *, level: str = "") -> str:
    """All that is said of something."""
    return "\n".join(
        f"{check['level']} {check['words']} {check['advice']}"
        for check in checks
        if check["about"].startswith(about) and level in ("", check["level"])
    )


def test_a_sound_federation(place: Machine) -> None:
    """The coordinator answers, the site is at work with good keys, the invitation's ports answer; no secret is said."""
    code, checks = ask(place, "--join", place.home / "hospital_b.join")
    assert 0 == code, checks
    found = discovery.find(None, place.home / "state" / "pfl" / "coordinators")
    for fact in ("ok ", found.addresses.control, "gathering", "1 of 1 sites"):
        assert fact in words_of(checks, "coordinator")
    pid = next(process.pid for process in place.running if "hospital_a" in str(process.args))
    for fact in (f"process {pid}", "keys"):
        assert fact in words_of(checks, "site hospital_a")
    join = words_of(checks, "--join hospital_b.join")
    assert "the site hospital_b" in join
    assert f"{found.addresses.enrolment} answers" in join
    assert f"{found.addresses.control} answers" in join
    said = json.dumps(checks)
    assert found.secret.hex() not in said
    assert json.loads((place.home / "hospital_b.join").read_text())["secret"] not in said
    assert "BEGIN" not in said


def test_the_same_for_a_person(place: Machine) -> None:
    """Lines that begin with their level, no control characters, one sentence at the end."""
    said = place.call("pfl", "doctor")
    lines = said.stdout.splitlines()
    assert (0, "nothing is wrong.") == (said.returncode, lines[-1])
    assert "\x1b" not in said.stdout
    assert {"ok", ""} == {line[:8].strip() for line in lines[:-1]}


def test_an_invitation_whose_coordinator_is_elsewhere(place: Machine, tmp_path: Path) -> None:
    """A port where nobody listens is an error with what to ask for; so is another's certificate."""
    from pfl_common.identity import Addresses, Ledger, write_join_file

    with socket.create_server(("127.0.0.1", 0)) as free:
        dead = f"127.0.0.1:{free.getsockname()[1]}"
    found = discovery.find(None, place.home / "state" / "pfl" / "coordinators")
    other = Authority.open_or_create(tmp_path / "other", now=datetime.now(UTC))
    ledger = Ledger(tmp_path / "ledger", other.ca_pem)
    addresses = Addresses(found.addresses.control, dead)
    write_join_file(ledger.invite("hospital_x", datetime.now(UTC), addresses=addresses), tmp_path / "x.join")
    code, checks = ask(place, "--join", tmp_path / "x.join")
    assert 75 == code
    assert "Connection refused" in words_of(checks, "--join x.join: enrolment")
    control = words_of(checks, "--join x.join: control")
    assert "a certificate that is not this federation's" in control
    assert "pfl invite NAME --again" in control


@pytest.mark.long  # test_reaching.py asks the same of one coordinator
def test_an_invitation_that_is_of_no_use(place: Machine, tmp_path: Path) -> None:
    """Expired, missing, damaged, open to others: each in words."""
    from pfl_common.identity import Addresses, Ledger, write_join_file

    authority = Authority.open(place.home / "pfl-state" / "federation")
    ledger = Ledger(tmp_path / "ledger", authority.ca_pem)
    old = ledger.invite(
        "hospital_o", datetime.now(UTC) - timedelta(days=30), addresses=Addresses("a:1", "a:2")
    )
    write_join_file(old, tmp_path / "old.join")
    code, checks = ask(place, "--join", tmp_path / "old.join")
    assert 2 == code
    assert "expired on" in words_of(checks, "--join old.join", level="error")
    code, checks = ask(place, "--join", tmp_path / "none.join")
    assert (2, True) == (code, "no file" in words_of(checks, "--join none.join", level="error"))
    open_to_all = tmp_path / "open.join"
    open_to_all.write_text((place.home / "hospital_b.join").read_text())
    open_to_all.chmod(0o644)
    code, checks = ask(place, "--join", open_to_all)
    assert (0, True) == (code, "chmod 600" in words_of(checks, "--join open.join", level="warning"))


def test_what_is_wrong_with_sites_that_lie_here(tmp_path: Path) -> None:
    """A certificate that has ended, a vault that names what is not there, a data folder that is gone."""
    machine = Machine(tmp_path / "left")
    authority = Authority.open_or_create(tmp_path / "federation", now=datetime.now(UTC))
    site = tmp_path / "sites" / authority.federation_id / "hospital_o"
    site.mkdir(parents=True, mode=0o700)
    keyring = Keyring.open(site / "keys")
    long_ago = datetime.now(UTC) - timedelta(days=100)
    keyring.store(
        authority.sign_site(keyring.csr("hospital_o"), "hospital_o", now=long_ago), authority.ca_pem
    )
    (site / "data.txt").write_text(str(tmp_path / "gone"))
    (site / "site.lock").touch()
    for run, text in (
        ("whole", '{"generations": []}'),
        ("torn", "{"),
        ("lost", '{"generations": [{"file": "x"}]}'),
    ):
        (site / "runs" / run).mkdir(parents=True)
        (site / "runs" / run / "vault.json").write_text(text)
    before = {path: path.read_bytes() for path in sorted(site.rglob("*")) if path.is_file()}
    code, checks = ask(machine, "--state", tmp_path / "sites")
    assert 2 == code
    said = words_of(checks, "site hospital_o")
    for words in (
        "error its certificate",
        "pfl invite hospital_o --again",
        f"warning its data folder is not there: {tmp_path / 'gone'}",
        "no pfl-client",
        "vault.json is damaged",
        "names x,",
        "0 generations",
    ):
        assert words in said
    assert before == {path: path.read_bytes() for path in sorted(site.rglob("*")) if path.is_file()}
    assert "none of this user runs here" in words_of(checks, "coordinator")


def test_a_coordinator_that_does_not_answer(tmp_path: Path) -> None:
    """It is found, and said to be silent, with where to look."""
    import os

    from pfl_common.identity import Addresses, Found, new_secret

    machine = Machine(tmp_path / "silent")
    authority = Authority.open_or_create(tmp_path / "state" / "federation", now=datetime.now(UTC))
    with socket.create_server(("127.0.0.1", 0)) as free:
        dead = f"127.0.0.1:{free.getsockname()[1]}"
    here = Addresses(dead, dead)
    found = Found(
        authority.federation_id, here, authority.ca_pem, os.getpid(), tmp_path / "state", new_secret()
    )
    discovery.publish(found, machine.home / "state" / "pfl" / "coordinators")
    code, checks = ask(machine)
    assert 75 == code
    assert "does not answer" in words_of(checks, f"coordinator {authority.federation_id}", level="error")
