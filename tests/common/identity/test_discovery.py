"""Discovery: what a coordinator leaves for its own user, and what a site makes of it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.identity import (
    Addresses,
    Authority,
    Found,
    IdentityError,
    Keyring,
    Ledger,
    coordinators_folder,
    find,
    new_secret,
    publish,
    withdraw,
)
from pfl_common.identity.process_identity import boot_of, process_mark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the coordinators of this test leave their files."""
    return tmp_path / "state" / "pfl" / "coordinators"


@pytest.fixture
def coordinator(tmp_path: Path, authority: Authority) -> Found:
    """A coordinator that runs: this very process."""
    return Found(
        federation_id=authority.federation_id,
        addresses=Addresses("127.0.0.1:7301", "127.0.0.1:7302", "127.0.0.1:7300"),
        ca_pem=authority.ca_pem,
        pid=os.getpid(),
        state_folder=tmp_path / "pfl-state",
        secret=new_secret(),
    )


def another(coordinator: Found) -> Found:
    """A second coordinator of the same user."""
    return Found(
        federation_id="f" * 16,
        addresses=Addresses("127.0.0.1:8301", "127.0.0.1:8302", "127.0.0.1:8300"),
        ca_pem=coordinator.ca_pem,
        pid=os.getpid(),
        state_folder=coordinator.state_folder.parent / "second-state",
        secret=new_secret(),
    )


def test_what_is_published_is_found(folder: Path, coordinator: Found) -> None:
    """A site with nothing typed finds the one coordinator, whole, and shows its secret nowhere."""
    publish(coordinator, folder)
    found = find(None, folder)
    assert coordinator == found
    assert repr(coordinator.secret) not in repr(found)


def test_the_file_is_private(folder: Path, coordinator: Found) -> None:
    """Folder 0700, file 0600, named by the federation."""
    path = publish(coordinator, folder)
    assert folder / f"{coordinator.federation_id}.json" == path
    assert (0o700, 0o600) == (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(path.stat().st_mode))


def test_a_found_secret_opens_the_door(
    folder: Path, coordinator: Found, ledger: Ledger, keyring: Keyring
) -> None:
    """From the discovery file to admission, the secret itself in nothing that is sent."""
    publish(coordinator, folder)
    csr = keyring.csr("hospital_a")
    proof = find(None, folder).prove("hospital_a", csr)
    ledger.admit_local("hospital_a", csr, proof=proof, secret=coordinator.secret)
    assert coordinator.secret not in proof + csr
    assert coordinator.secret.hex() not in (proof + csr).hex()


def test_none_found_says_what_to_do(folder: Path) -> None:
    """Without a coordinator the error names both ways on, and nothing is made."""
    with pytest.raises(IdentityError) as caught:
        find(None, folder)
    assert "pfl-server" in caught.value.advice
    assert "pfl-client --join" in caught.value.advice, "the operator's program has no --join"
    assert not folder.exists()


def test_two_found_are_listed(folder: Path, coordinator: Found) -> None:
    """Nobody guesses: both are named with address, and `--server` is."""
    publish(coordinator, folder)
    publish(another(coordinator), folder)
    with pytest.raises(IdentityError, match="--server") as caught:
        find(None, folder)
    for part in (coordinator.federation_id, "f" * 16, "127.0.0.1:7301", "127.0.0.1:8301"):
        assert part in caught.value.seen


@pytest.mark.parametrize("server", ["ffff", "f" * 16, "127.0.0.1:8301", "127.0.0.1:8302", "127.0.0.1:8300"])
def test_server_picks_one(folder: Path, coordinator: Found, server: str) -> None:
    """By the beginning of its id or by any of its addresses."""
    publish(coordinator, folder)
    publish(another(coordinator), folder)
    assert "f" * 16 == find(server, folder).federation_id


def test_server_picks_one_by_its_state_folder(folder: Path, coordinator: Found) -> None:
    """The folder given to `pfl-server --state` names it too."""
    publish(coordinator, folder)
    publish(another(coordinator), folder)
    assert coordinator == find(str(coordinator.state_folder), folder)


def test_a_server_that_does_not_run_lists_those_that_do(folder: Path, coordinator: Found) -> None:
    """A wrong `--server` is answered with the right ones, even if there is only one."""
    publish(coordinator, folder)
    with pytest.raises(IdentityError, match=r"fits --server 10\.0\.0\.1:1") as caught:
        find("10.0.0.1:1", folder)
    assert coordinator.federation_id in caught.value.seen


def test_a_dead_coordinators_file_is_ignored_and_removed(folder: Path, coordinator: Found) -> None:
    """A process that is gone leaves nothing a site could stumble over."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        dead = Found(**{**vars(coordinator), "pid": process.pid})
        path = publish(dead, folder)
        assert dead == find(None, folder)
    with pytest.raises(IdentityError, match="no coordinator"):
        find(None, folder)
    assert not path.exists()


def test_a_number_given_to_a_later_process_is_not_the_coordinator(folder: Path, coordinator: Found) -> None:
    """The same number with another start is another process."""
    path = publish(coordinator, folder)
    record = json.loads(path.read_bytes())
    boot = boot_of(record["started"])
    path.write_text(json.dumps(record | {"started": f"{boot}:1"}))
    with pytest.raises(IdentityError, match="no coordinator"):
        find(None, folder)
    assert not path.exists()


def test_another_boot_is_not_judged_while_the_number_is_in_use(folder: Path, coordinator: Found) -> None:
    """A container may tell a shell of another boot than a service: the service's file is not used, and stays."""
    path = publish(coordinator, folder)
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps(record | {"started": "another boot:1"}))
    with pytest.raises(IdentityError, match="no coordinator"):
        find(None, folder)
    assert path.exists()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    path.write_text(json.dumps(record | {"started": "another boot:1", "pid": ended.pid}))
    with pytest.raises(IdentityError, match="no coordinator"):
        find(None, folder)
    assert not path.exists()


def test_it_is_meant_by_any_of_its_names(folder: Path, coordinator: Found) -> None:
    """Found where this machine reaches it, and known by what others dial too."""
    named = replace(coordinator, names=("coordinator.example.org", "10.0.0.7"))
    publish(named, folder)
    for server in ("127.0.0.1:7301", "coordinator.example.org:7301", "10.0.0.7:7302"):
        assert named == find(server, folder)


def test_another_machines_coordinator_is_left_alone(folder: Path, coordinator: Found) -> None:
    """In a home directory shared by machines a foreign process cannot be judged: not used, not removed."""
    path = publish(coordinator, folder)
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps(record | {"machine": "elsewhere"}))
    with pytest.raises(IdentityError, match="no coordinator"):
        find(None, folder)
    assert path.exists()


def test_withdrawing_ends_it(folder: Path, coordinator: Found) -> None:
    """After a coordinator's good end nobody finds it; withdrawing twice is no error."""
    publish(coordinator, folder)
    withdraw(coordinator.federation_id, folder, pid=coordinator.pid)
    withdraw(coordinator.federation_id, folder, pid=coordinator.pid)
    with pytest.raises(IdentityError, match="no coordinator"):
        find(None, folder)


def test_a_late_withdrawal_does_not_hide_the_successor(folder: Path, coordinator: Found) -> None:
    """A process that ends slowly does not take its successor's file along."""
    publish(coordinator, folder)
    withdraw(coordinator.federation_id, folder, pid=coordinator.pid + 1)
    assert coordinator == find(None, folder)


@pytest.mark.parametrize("wide", ["folder", "file"])
def test_wide_permissions_are_refused(folder: Path, coordinator: Found, wide: str) -> None:
    """What others may read or write is no proof of anything."""
    path = publish(coordinator, folder)
    (folder if wide == "folder" else path).chmod(0o755 if wide == "folder" else 0o604)
    with pytest.raises(IdentityError, match="others can reach"):
        find(None, folder)


@pytest.mark.parametrize("foreign", ["folder", "file"])
def test_a_foreign_owner_is_refused(
    folder: Path, coordinator: Found, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file somebody else put there leads to somebody else's coordinator."""
    publish(coordinator, folder)
    real = {"folder": os.lstat, "file": os.fstat}[foreign]

    def owned_by_another(target: Path | int) -> os.stat_result:
        found = list(real(target))
        found[stat.ST_UID] += 1
        return os.stat_result(found)

    monkeypatch.setattr(os, real.__name__, owned_by_another)
    with pytest.raises(IdentityError, match="belongs to user"):
        find(None, folder)


def test_a_damaged_file_is_named(folder: Path, coordinator: Found) -> None:
    """A torn file is an error with its path, not a crash."""
    path = publish(coordinator, folder)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(IdentityError, match="is damaged"):
        find(None, folder)


def test_the_folder_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """$XDG_STATE_HOME if it is absolute, ~/.local/state otherwise."""
    monkeypatch.setenv("HOME", str(tmp_path))
    at_home = tmp_path / ".local" / "state" / "pfl" / "coordinators"
    assert Path("/var/x/pfl/coordinators") == coordinators_folder({"XDG_STATE_HOME": "/var/x"})
    assert at_home == coordinators_folder({"XDG_STATE_HOME": "relative"})
    assert at_home == coordinators_folder({})


def test_a_process_is_known_by_its_start() -> None:
    """Each process has its own mark, always the same; none runs under an impossible number."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        mark = process_mark(process.pid)
        assert mark is not None
        assert mark == process_mark(process.pid)
    assert process_mark(process.pid) is None
    assert process_mark(0) is None


def test_a_process_that_has_ended_but_is_not_yet_cleared_away_does_not_run() -> None:
    """In a container nobody may clear away a killed coordinator; it is dead all the same."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_mark(process.pid) is None
