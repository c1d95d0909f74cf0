"""Where a coordinator can be reached, and where not: real ports, a real certificate, a site from another machine."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from pfl_common.identity import read_join_file
from tests.deploy.support.processes import Machine, write_site
from tests.words import Spoken, check_clear


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


def port_of(address: str) -> int:
    """The number behind the last colon."""
    return int(address.rpartition(":")[2])


def names_in_certificate(address: str) -> set[str]:
    """Under what a coordinator's certificate holds."""
    host, _, port = address.rpartition(":")
    shown = ssl.get_server_certificate((host, int(port)))
    alternatives = x509.load_pem_x509_certificate(shown.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return {str(name.value) for name in alternatives.value}


def test_the_page_does_not_open_with_the_ports_for_sites(machine: Machine) -> None:
    """`--host` lets sites in by another address; the page, which has no password, is still this machine's own."""
    machine.server("--sites", "99", "--host", "127.0.0.2")
    found = machine.discovery()
    assert found is not None
    assert "127.0.0.2" == found["control"].rpartition(":")[0]
    assert found["http"].startswith("http://127.0.0.1:")
    assert '"gathering"' in machine.read(f"{found['http']}/status.json")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port_of(found["http"])), timeout=5)


def test_the_page_opens_where_it_is_told_to(machine: Machine) -> None:
    """`--http-host` is the page's own address, and the one that is told."""
    machine.server("--sites", "99", "--http-host", "127.0.0.3")
    found = machine.discovery()
    assert found is not None
    assert found["http"].startswith("http://127.0.0.3:")
    assert "pfl_run_info" in machine.read(f"{found['http']}/metrics")
    assert found["control"].startswith("127.0.0.1:")


def test_a_site_comes_by_the_name_its_invitation_carries(machine: Machine, tmp_path: Path) -> None:
    """Two names of one machine are in one certificate; an invitation carries the first unless told."""
    machine.server("--sites", "99", "--host", "127.0.0.2", "--advertise", "coordinator.invalid,127.0.0.2")
    said = machine.call("pfl", "invite", "hospital_a", "--out", tmp_path)
    assert 0 == said.returncode, said.stderr
    first = read_join_file(tmp_path / "hospital_a.join", now=datetime.now(UTC)).addresses
    assert "coordinator.invalid" == first.control.rpartition(":")[0]
    said = machine.call("pfl", "invite", "hospital_a", "--again", "--under", "127.0.0.2", "--out", tmp_path)
    assert 0 == said.returncode, said.stderr
    second = read_join_file(tmp_path / "hospital_a.join", now=datetime.now(UTC)).addresses
    assert f"127.0.0.2:{port_of(first.enrolment)}" == second.enrolment
    assert {"coordinator.invalid", "127.0.0.2"} < names_in_certificate(second.enrolment)

    elsewhere = Machine(tmp_path / "elsewhere")
    data = write_site(tmp_path / "hospital_a", samples=12)
    site = elsewhere.client(data, "--join", tmp_path / "hospital_a.join")
    try:
        elsewhere.wait_for(
            lambda: f"coordinator={second.control}" in elsewhere.said("hospital_a"), site, "hospital_a"
        )
    finally:
        elsewhere.end_all()


def test_its_own_machine_needs_no_name_service(machine: Machine, tmp_path: Path) -> None:
    """Under a name that only others can look up: `pfl` and a site of the same user find it all the same."""
    server = machine.server("--sites", "99", "--host", "0.0.0.0", "--advertise", "coordinator.invalid")
    found = machine.discovery()
    assert found is not None
    assert "127.0.0.1" == found["control"].rpartition(":")[0]
    assert f"control=coordinator.invalid:{port_of(found['control'])}" in machine.said("server")
    machine.client(write_site(tmp_path / "hospital_a", samples=12))
    machine.wait_for(lambda: "hospital_a" in machine.call("pfl", "status").stdout, server, "server")
    assert 0 == machine.call("pfl", "invite", "hospital_b", "--out", tmp_path).returncode
    invited = read_join_file(tmp_path / "hospital_b.join", now=datetime.now(UTC)).addresses
    assert f"coordinator.invalid:{port_of(found['control'])}" == invited.control
    assert 0 == machine.call("pfl", "stop").returncode


def test_a_name_the_certificate_lacks_is_refused_before_a_site_has_to_find_out(machine: Machine) -> None:
    """An invitation that cannot work is not written."""
    machine.server("--sites", "99", "--advertise", "10.0.0.7")
    done = machine.call("pfl", "invite", "hospital_a", "--under", "10.0.0.8")
    check_clear(
        Spoken(done.returncode, done.stdout, done.stderr),
        2,
        "not known as '10.0.0.8'",
        "did you mean '10.0.0.7'",
        "--advertise 10.0.0.7,10.0.0.8",
    )
    assert not (machine.home / "hospital_a.join").exists()
