"""The units for machines without Kubernetes: systemd accepts them, they are closed, and they say what programs know."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common import errors
from pfl_common.app.config import settle
from pfl_deploy.demo import make
from pfl_server import process as coordinator
from pfl_server.network.port_limits import share_out
from pfl_server.settings import ServerSettings
from tests.deploy.support import commands
from tests.deploy.support.tools import tool

FOLDER = Path(__file__).parents[3] / "deploy" / "systemd"
UNITS = {"pfl-coordinator.service": "pfl-server", "pfl-site@.service": "pfl-client"}
OPEN_AT_MOST = 12
"""Tenths of systemd's exposure level."""


def lines(unit: str) -> list[tuple[str, str]]:
    """A unit's settings in their order."""
    text = (FOLDER / unit).read_text()
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return [(name, value) for name, _, value in pairs]


def last(unit: str, name: str) -> str:
    """The value that counts."""
    return [value for found, value in lines(unit) if found == name][-1]


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd's own check, which needs no running systemd."""
    command = [tool("systemd-analyze", "systemd"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def put(unit: str, folder: Path, *changes: tuple[str, str]) -> Path:
    """A copy of a unit, its program replaced by one that is there."""
    program = UNITS[unit]
    text = (FOLDER / unit).read_text().replace(f"/opt/pfl/bin/{program}", str(shutil.which("true")))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / unit).write_text(text)
    return folder / unit


def test_the_coordinator_has_descriptors_for_its_sites() -> None:
    """Ten thousand of them, on each port as many connections as it takes at most."""
    assert share_out(int(last("pfl-coordinator.service", "LimitNOFILE")), 10_000).sites >= 3 * 10_000


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_a_unit_without_a_word(unit: str, tmp_path: Path) -> None:
    """Anything systemd does not know or like it says, and goes on without."""
    said = analyze("verify", "--man=no", put(unit, tmp_path))
    assert ("", 0) == (said.stdout + said.stderr, said.returncode)


def test_a_word_systemd_does_not_know_is_seen(tmp_path: Path) -> None:
    """The check above is able to fail."""
    said = analyze(
        "verify", "--man=no", put("pfl-coordinator.service", tmp_path, ("PrivateTmp", "PrivateTemp"))
    )
    assert "PrivateTemp" in said.stdout + said.stderr


def test_systemd_takes_the_gpu_drop_in(tmp_path: Path) -> None:
    """The devices it opens are named as systemd names devices."""
    unit = put("pfl-site@.service", tmp_path)
    (tmp_path / "pfl-site@.service.d").mkdir()
    shutil.copy(FOLDER / "gpu.conf", tmp_path / "pfl-site@.service.d")
    said = analyze("verify", "--man=no", unit)
    assert ("", 0) == (said.stdout + said.stderr, said.returncode)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_stays_closed(unit: str, tmp_path: Path) -> None:
    """Its exposure is at most what the README states, and does rise when a line goes."""
    closed = put(unit, tmp_path)
    threshold = f"--threshold={OPEN_AT_MOST}"
    said = analyze("security", "--offline=true", threshold, closed)
    assert 0 == said.returncode, said.stdout[-200:]
    score = re.search(r"exposure level for .*: ([\d.]+)", said.stdout)
    assert score is not None
    assert f"an exposure of {score[1]} (" in " ".join((FOLDER / "README.md").read_text().split())
    opened = put(unit, tmp_path, ("NoNewPrivileges=yes\n", ""), ("ProtectHome=yes\n", ""))
    assert 0 != analyze("security", "--offline=true", threshold, opened).returncode


@pytest.mark.parametrize(("unit", "program"), UNITS.items())
def test_a_unit_starts_its_program_with_what_it_understands(unit: str, program: str) -> None:
    """Options and variables are those that exist."""
    path, *words = shlex.split(last(unit, "ExecStart"))
    assert f"/opt/pfl/bin/{program}" == path
    assert {word for word in words if word.startswith("--")}
    assert set() == commands.unknown_options(program, words)
    given = {
        pair.split("=")[0] for name, value in lines(unit) if name == "Environment" for pair in value.split()
    }
    assert set() == {name for name in given if name.startswith("PFL_")} - commands.variables(program)


def exit_codes() -> list[tuple[int, str, str]]:
    """The README's table: a code, and what the coordinator's and the site's unit do then."""
    row = r"^\| (\d+)(?:,[^|]*)? \|[^|]*\|[^|]*\| ([\w ]+) \| ([\w ]+) \|$"
    found = re.findall(row, (FOLDER / "README.md").read_text(), re.M)
    return [(int(code), coordinator, site) for code, coordinator, site in found]


def kinds(root: type[errors.PflError]) -> Iterator[type[errors.PflError]]:
    """An error and all that are derived from it, as far as the three programs have them."""
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def test_the_table_of_exit_codes_is_the_programs() -> None:
    """Each code an error ends a program with is in the table, and no other: 0 is none, 1 nobody chose."""
    assert make.Interrupted in set(kinds(errors.PflError))
    codes = {
        getattr(kind, "exit_code", 1) for kind in kinds(errors.PflError) if kind.__module__[:4] == "pfl_"
    }
    told = [code for code, *_ in exit_codes()]
    assert sorted({0, 1} | codes) == told
    assert os.EX_TEMPFAIL == errors.Unavailable.exit_code


@pytest.mark.parametrize(("unit", "column"), [("pfl-coordinator.service", 0), ("pfl-site@.service", 1)])
def test_a_unit_starts_again_as_the_readme_says(unit: str, column: int) -> None:
    """Which exit codes are tried again, in the unit and in the table."""
    down = {code for code, *does in exit_codes() if does[column] == "stays down"}
    assert down - {0} == {int(code) for code in last(unit, "RestartPreventExitStatus").split()}
    assert "on-failure" == last(unit, "Restart")


def test_the_coordinator_has_time_to_drain() -> None:
    """Both of its ports may take their whole time before systemd loses patience."""
    needed = 2 * coordinator.DRAIN_SECONDS + coordinator.FAREWELL_SECONDS
    assert needed < int(last("pfl-coordinator.service", "TimeoutStopSec"))
    assert {"mixed"} == {last(unit, "KillMode") for unit in UNITS}


def test_the_example_of_a_coordinator_can_be_used() -> None:
    """Every name in the example is a setting."""
    settings = settle(
        ServerSettings, tomllib.loads((FOLDER / "coordinator.toml").read_text()), what="example"
    )
    assert "0.0.0.0" == settings.host
    assert "127.0.0.1" == settings.http_host
    assert settings.advertise


def test_the_readme_installs_what_is_there() -> None:
    """Each file the README names exists, and each place in a unit is one the README fills."""
    told = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"deploy/systemd/([\w.@-]+)", told))
    assert {path.name for path in FOLDER.iterdir()} - {"README.md"} == named
    users = (FOLDER / "pfl.sysusers.conf").read_text()
    assert f"u {last('pfl-coordinator.service', 'User')} " in users
    assert f"g {last('pfl-site@.service', 'SupplementaryGroups')} " in users
    assert f"chgrp -R {last('pfl-site@.service', 'SupplementaryGroups')} /srv/pfl/" in told


def test_what_a_command_needs_stands_before_it() -> None:
    """Who copies one block after the other has made what `pfl` needs in a container before it is called."""
    told = (FOLDER / "README.md").read_text()
    assert told.index("umount /proc/sys/kernel/random/boot_id") < told.index("as_operator=")
