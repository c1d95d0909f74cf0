"""Bad input has a clear end: by their users' own commands, in real processes that have to find each other."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfl_common.identity import Authority, Keyring, Ledger, discovery, read_join_file, write_join_file
from tests.deploy.support.processes import Machine, write_site
from tests.words import Spoken, check_clear

FREE_PORTS = ("--port", "0", "--enrol-port", "0", "--http-port", "0")
LONG_AGO = datetime.now(UTC) - timedelta(days=100)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a coordinator that waits for more sites than will ever come."""
    place = Machine(tmp_path_factory.mktemp("waiting"))
    place.server("--sites", "99")
    yield place
    place.end_all()


def spoken(done: subprocess.CompletedProcess[str]) -> Spoken:
    """What a program that has ended said."""
    return Spoken(done.returncode, done.stdout, done.stderr)


def ended(machine: Machine, process: subprocess.Popen[bytes], log: str) -> Spoken:
    """What a program that was started said until its end."""
    return Spoken(machine.finish(process, log=log), "", machine.said(log))


def write_pictures(
    folder: Path, *, sizes: tuple[int, ...] = (16,), classes: tuple[str, ...] = ("a", "b")
) -> Path:
    """A folder of small grey images in class folders, each class with a brightness of its own."""
    for part, count in (("train", 8), ("test", 4)):
        for place, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                size = sizes[number % len(sizes)]
                pixels = np.full((size, size), 60 + 100 * place + number, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")
    return folder


def coordinator_folder(machine: Machine) -> Path:
    """The coordinator's state folder."""
    return machine.home / "pfl-state"


# -- before a run


def test_an_empty_data_folder(waiting: Machine, tmp_path: Path) -> None:
    """The folder is named, with the forms that can be read."""
    folder = tmp_path / "hospital_empty"
    folder.mkdir()
    said = spoken(waiting.call("pfl-client", "--data", folder))
    check_clear(said, 3, "the data folder is empty", "expected:", "train.npz", "what to do:", str(folder))


def test_odd_pictures_are_errors_only_when_strict(waiting: Machine, tmp_path: Path) -> None:
    """With --strict-data sizes that differ end the program, and so does a file that is no image."""
    mixed = write_pictures(tmp_path / "hospital_mixed", sizes=(16, 20))
    said = spoken(waiting.call("pfl-client", "--data", mixed, "--strict-data"))
    check_clear(said, 3, "2 different sizes: 16x16", "images of one size", "leave --strict-data out")
    broken = write_pictures(tmp_path / "hospital_broken")
    (broken / "train" / "a" / "notes.png").write_text("no image")
    said = spoken(waiting.call("pfl-client", "--data", broken, "--strict-data"))
    check_clear(said, 3, "file 9 of train/a is no image that can be read", "images only")
    assert "notes.png" not in said.text  # standard error is no terminal here


def test_two_folders_with_one_name(waiting: Machine, tmp_path: Path) -> None:
    """While the first runs, and also after it, the second is told to take a name of its own."""
    first = write_site(tmp_path / "one" / "hospital_twin", samples=12)
    second = write_site(tmp_path / "two" / "hospital_twin", samples=12)
    running = waiting.client(first)
    waiting.wait_for(lambda: "hospital_twin" in waiting.said("hospital_twin"), running, "hospital_twin")
    said = spoken(waiting.call("pfl-client", "--data", second))
    check_clear(said, 4, "in use by another pfl-client", "one daemon per site", "--name")
    assert 0 == waiting.stop(running)
    said = spoken(waiting.call("pfl-client", "--data", second))
    check_clear(
        said,
        2,
        f"another data folder is already called hospital_twin here: {first}",
        "--name hospital_twin_2",
    )


def test_a_wrong_and_a_used_invitation(waiting: Machine, tmp_path: Path) -> None:
    """A secret that was changed is refused without a hint, and one that was used opens no second door."""
    folder = write_site(tmp_path / "hospital_guest", samples=12)
    assert 0 == waiting.call("pfl", "invite", "hospital_guest", "--out", tmp_path).returncode
    good = tmp_path / "hospital_guest.join"
    forged = tmp_path / "forged.join"
    invitation = read_join_file(good, now=datetime.now(UTC))
    object.__setattr__(invitation, "secret", bytes(len(invitation.secret)))
    write_join_file(invitation, forged)
    elsewhere = Machine(tmp_path / "elsewhere")
    said = spoken(elsewhere.call("pfl-client", "--data", folder, "--join", forged))
    check_clear(
        said, 2, "did not accept this invitation", "expected an unused invitation", "pfl invite NAME --again"
    )

    running = waiting.start("pfl-client", "--data", folder, "--join", good, log="guest")
    waiting.wait_for(lambda: "hospital_guest" in waiting.said("guest"), running, "guest")
    said = spoken(elsewhere.call("pfl-client", "--data", folder, "--join", good))
    check_clear(said, 2, "has been used already", "expected: an unused", "pfl invite hospital_guest --again")
    assert 0 == waiting.stop(running)


def test_an_expired_certificate(waiting: Machine, tmp_path: Path) -> None:
    """A user with an invitation that is as old is told to ask for another; the same user is let in again."""
    folder = write_site(tmp_path / "hospital_old", samples=12)
    state = coordinator_folder(waiting)
    authority = Authority.open(state / "federation")
    found = discovery.find(None, waiting.home / "state" / "pfl" / "coordinators")
    invitation = Ledger(state / "invitations", authority.ca_pem).invite(
        "hospital_old", LONG_AGO, addresses=found.addresses
    )
    write_join_file(invitation, tmp_path / "hospital_old.join")
    keep_old_certificate(waiting, authority, "hospital_old")
    said = spoken(waiting.call("pfl-client", "--data", folder, "--join", tmp_path / "hospital_old.join"))
    until = LONG_AGO + timedelta(days=30)
    check_clear(
        said,
        2,
        f"the certificate of hospital_old expired on {until:%Y-%m-%d}",
        "pfl invite hospital_old --again",
    )

    keep_old_certificate(waiting, authority, "hospital_here")
    running = waiting.client(folder, "--name", "hospital_here")
    waiting.wait_for(lambda: "name=hospital_here" in waiting.said("hospital_old"), running, "hospital_old")
    assert 0 == waiting.stop(running)


def keep_old_certificate(machine: Machine, authority: Authority, name: str) -> None:
    """A site's keys as they lie there when it was away for long."""
    site = machine.home / "state" / "pfl" / "sites" / authority.federation_id / name
    site.mkdir(parents=True, mode=0o700)
    keyring = Keyring.open(site / "keys")
    keyring.store(authority.sign_site(keyring.csr(name), name, now=LONG_AGO), authority.ca_pem)


@pytest.mark.parametrize("flag", ["--port", "--enrol-port", "--http-port"])
def test_a_port_in_use(machine: Machine, flag: str) -> None:
    """Which port, and by which flag another can be named; nothing is left running or published."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        ports = {"--port": "0", "--enrol-port": "0", "--http-port": "0"} | {flag: str(port)}
        words = [word for pair in ports.items() for word in pair]
        said = spoken(machine.call("pfl-server", *words))
    check_clear(said, 2, f"port {port}", "expected: a free port", "what to do:")
    assert None is machine.discovery()


@pytest.mark.long  # test_state_folder.py holds the lock
def test_a_second_coordinator(machine: Machine, tmp_path: Path) -> None:
    """On the same state folder it refuses; on another one it is welcome, and sites and `pfl` ask which is meant."""
    first = machine.server("--sites", "99")
    said = spoken(machine.call("pfl-server", *FREE_PORTS))
    check_clear(said, 4, "another coordinator is using the state folder", "--state")

    words = (*FREE_PORTS, "--state", "second")
    second = machine.start("pfl-server", *words, log="second")
    machine.wait_for(lambda: "waiting for sites" in machine.said("second"), second, "second")
    folder = write_site(tmp_path / "hospital_a", samples=12)
    said = spoken(machine.call("pfl-client", "--data", folder))
    check_clear(said, 2, "2 running", "expected: one of them", "--server")
    said = spoken(machine.call("pfl", "status"))
    check_clear(said, 2, "2 running", "--server")
    said = spoken(machine.call("pfl", "status", "--json", "--server", machine.home / "second"))
    check_clear(said, 0)
    assert "gathering" == json.loads(said.out)["status"]
    assert [0, 0] == [machine.stop(first), machine.stop(second)]
    check_clear(spoken(machine.call("pfl", "status")), 75, "no coordinator of this user runs", "pfl-server")


# -- at the beginning of a run


def test_one_class_in_the_whole_federation(machine: Machine, tmp_path: Path) -> None:
    """The coordinator ends with the reason, and each site is told it too."""
    server = machine.server("--method", "fedavg")
    names = ("hospital_a", "hospital_b")
    sites = [machine.client(write_site(tmp_path / name, samples=8, classes=("ill",))) for name in names]
    reason = (
        "the whole federation knows 1 class (ill)",
        "at least two classes over all sites",
        "check the classes",
    )
    check_clear(ended(machine, server, "server"), 3, *reason)
    for name, site in zip(names, sites, strict=True):
        check_clear(ended(machine, site, name), 5, "the coordinator has ended the run", *reason)
    assert None is machine.discovery()


# -- in mid-run


def test_oddities_do_not_stop_a_run_and_intruders_do_not_enter_it(machine: Machine, tmp_path: Path) -> None:
    """One class at one site, mixed sizes, a file that is no image: warnings. What does not fit the run stays out."""
    typed = ("--method", "fedavg", "--rounds", "100000", "--backbone", "mlp")
    server = machine.server(*typed)
    odd = write_pictures(tmp_path / "hospital_a", sizes=(16, 20))
    (odd / "train" / "b" / "notes.png").write_text("no image")
    one_class = write_pictures(tmp_path / "hospital_b", classes=("a",))
    for folder in (odd, one_class):
        machine.client(folder)
    machine.wait_for(lambda: "round closed counted=2" in machine.said("server"), server, "server")
    for words in (
        "1 of 25 files are no images that can be read and are left out",
        "2 different sizes are resized",
    ):
        assert words in machine.said("hospital_a")
    assert "only one class here, 'a'" in machine.said("hospital_b")

    unknown = write_pictures(tmp_path / "hospital_c", classes=("a", "z"))
    said = spoken(machine.call("pfl-client", "--data", unknown))
    check_clear(
        said, 3, "hospital_c has classes the run does not know: z", "expected some of a, b", "check --data"
    )
    other = tmp_path / "hospital_d"
    other.mkdir()
    for part in ("train", "test"):
        np.savez(other / f"{part}.npz", x=np.ones((4, 7), np.float32), y=np.array([0, 1, 0, 1]))
    (other / "classes.json").write_text('["a", "b"]')
    said = spoken(machine.call("pfl-client", "--data", other))
    check_clear(said, 3, "hospital_d has a table of 7 columns", "pictures of shape (1, ", "check --data")
    status = json.loads(machine.call("pfl", "status", "--json").stdout)
    assert ("running", ["hospital_a", "hospital_b"]) == (
        status["status"],
        [s["site"] for s in status["sites"]],
    )

    assert 0 == machine.stop(server), "SIGTERM is no failure, also in mid-run"
    said = spoken(machine.call("pfl-server", *FREE_PORTS, *typed, "--seed", "8"))
    check_clear(
        said, 4, "is unfinished", "seed was 0, now 8", "start with those settings to go on", "--new-run"
    )


def test_an_invitation_says_until_when_it_opens(waiting: Machine, tmp_path: Path) -> None:
    """To a person and to a script, as it stands in the file: a site that comes later is turned away."""
    place = tmp_path / "hospital_late.join"
    said = waiting.call("pfl", "invite", "hospital_late", "--out", tmp_path)
    ends = read_join_file(place, now=datetime.now(UTC)).expires
    check_clear(spoken(said), 0, f"{place}: give it to the site", f"once, until {ends:%Y-%m-%d %H:%M} UTC")
    said = waiting.call("pfl", "invite", "hospital_late", "--out", tmp_path, "--again", "--json")
    ends = read_join_file(place, now=datetime.now(UTC)).expires
    told = {"site": "hospital_late", "file": str(place), "expires": ends.isoformat()}
    assert told == json.loads(said.stdout)


def test_an_invitation_that_cannot_be_written_does_not_count(waiting: Machine, tmp_path: Path) -> None:
    """A folder that is not there, or a file in the way, is told before the name is used up."""
    done = waiting.call("pfl", "invite", "zz", "--out", tmp_path / "nowhere")
    check_clear(spoken(done), 2, f"the folder {tmp_path}/nowhere is not there", "--out")
    (tmp_path / "zz.join").write_text("an older one")
    done = waiting.call("pfl", "invite", "zz", "--out", tmp_path)
    check_clear(spoken(done), 2, f"{tmp_path}/zz.join exists already", "pfl invite zz --again")
    (tmp_path / "zz.join").unlink()
    assert 0 == waiting.call("pfl", "invite", "zz", "--out", tmp_path).returncode


def test_a_run_that_is_over_cannot_be_stopped(machine: Machine) -> None:
    """A second `pfl stop` says that there is nothing to stop, and how the coordinator itself is ended."""
    server = machine.server("--sites", "99")
    assert 0 == machine.call("pfl", "stop").returncode
    machine.wait_for(lambda: '"stopped"' in machine.call("pfl", "status", "--json").stdout, server, "server")
    done = machine.call("pfl", "stop")
    check_clear(spoken(done), 2, "the run is over (stopped): there is nothing to stop", "systemctl stop")
