"""What `pfl doctor` says of a machine, without a coordinator."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pfl_common.errors import SettingError
from pfl_deploy.doctor import machine
from pfl_deploy.doctor.result import Check, error, exit_code, guarded, ok, warning


def look(environ: dict[str, str], state: Path) -> dict[str, list[Check]]:
    """The findings by what they are about."""
    found: dict[str, list[Check]] = {}
    for check in machine.examine(state, environ):
        found.setdefault(check.about, []).append(check)
    return found


def test_a_sound_machine_has_no_warning(tmp_path: Path) -> None:
    """Python, the package, torch with its CPU class, memory and disk are told."""
    found = look({}, tmp_path / "not" / "there" / "yet")
    assert {
        "Python",
        "pfl-net",
        "torch",
        "torchvision",
        "processor",
        "clock",
        "temporary files",
        "ports",
        "GPU",
        "memory",
        "proxy",
        "disk of the sites' state",
    } <= found.keys()
    assert {"ok"} == {check.level for checks in found.values() for check in checks}
    assert "CPU class" in found["torch"][0].words


def test_a_password_in_a_proxys_address_is_not_shown(tmp_path: Path) -> None:
    """What the doctor says is sent to people who help."""
    environ = {"HTTPS_PROXY": "http://me:s3cret@proxy.example.org:3128", "no_proxy": "localhost"}
    found = look(environ, tmp_path)["proxy"]
    assert ["ok", "ok"] == [check.level for check in found]
    assert "https_proxy=http://***@proxy.example.org:3128" in found[0].words
    assert "s3cret" not in str(found)
    assert "me:" not in str(found)


def test_a_proxy_that_grpc_does_not_use_is_a_warning(tmp_path: Path) -> None:
    """Only CONNECT over http is known to it."""
    found = look({"https_proxy": "socks5://me:s3cret@proxy:1080"}, tmp_path)["proxy"]
    assert ("warning", "write https_proxy=http://HOST:PORT") == (found[0].level, found[0].advice[:34])
    assert "s3cret" not in str(found)


def test_a_misspelt_setting_of_the_environment_is_found(tmp_path: Path) -> None:
    """No program says so: a name that nobody knows is not read."""
    found = look({"PFL_ROUDNS": "3", "PFL_ROUNDS": "3", "PFL_TORCH_INDEX": "x", "PFL_ZZ": "y"}, tmp_path)
    told = {check.words.split()[0]: (check.level, check.advice) for check in found["environment"]}
    assert ("warning", "did you mean 'PFL_ROUNDS'?") == told["PFL_ROUDNS"]
    assert "ok" == told["PFL_ROUNDS"][0]
    assert "warning" == told["PFL_ZZ"][0]
    assert "PFL_TORCH_INDEX" not in told


@pytest.mark.parametrize(
    ("free", "level", "code"), [(10 << 20, "error", 4), (500 << 20, "warning", 0), (2 << 30, "ok", 0)]
)
def test_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str, code: int
) -> None:
    """Before anything is lost."""
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: type("Usage", (), {"free": free}))
    check = machine.look_at_room("disk", tmp_path)
    assert (level, code) == (check.level, exit_code([check]))
    assert (level == "ok") == (not check.advice)


def test_a_state_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in the way is named."""
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    check = machine.look_at_room("disk", tmp_path / "sites")
    assert ("error", 4) == (check.level, check.code)
    assert f"may not write to {tmp_path}" in check.words


def test_little_memory_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that the system ends says little."""
    monkeypatch.setattr(machine, "free_memory", lambda: 100 << 20)
    assert "warning" == look({}, tmp_path)["memory"][0].level


def test_one_look_that_fails_does_not_end_the_others() -> None:
    """It is an error of its own."""

    def fail() -> list[Check]:
        raise OSError(13, "Permission denied")

    (found,) = guarded("sites", fail)
    assert ("sites", "error") == (found.about, found.level)
    assert "Permission denied" in found.words


def test_the_exit_code_is_that_of_the_first_error() -> None:
    """As the programs would have ended; warnings change nothing."""
    assert 0 == exit_code([ok("a", ""), warning("b", "")])
    assert 3 == exit_code([warning("b", ""), error("c", "", code=3), error("d", "", code=4)])


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (SettingError("torchvision is not installed here"), "is not installed"),
        (ImportError("libtorch.so.2 not found"), "cannot be loaded: libtorch"),
        (RuntimeError("operator torchvision::nms does not exist"), "cannot be loaded: operator"),
    ],
)
def test_torchvision_that_is_missing_or_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, words: str
) -> None:
    """An error with the command that installs what fits."""

    def fail() -> None:
        raise raised

    monkeypatch.setattr("pfl_common.models.torchvision_import.import_torchvision", fail)
    (found,) = look({}, tmp_path)["torchvision"]
    assert ("error", True) == (found.level, words in found.words)
    assert "deploy/environment" in found.advice


def test_a_clock_that_is_wrong() -> None:
    """No clock may be before the day these programs were installed; a day of time zones is let pass."""
    written = datetime.fromtimestamp(Path(machine.__file__).stat().st_mtime, UTC)
    early = machine._clock(written - timedelta(days=2))
    assert ("error", 75) == (early.level, early.code)
    assert "date -u" in early.advice
    assert "ok" == machine._clock(written - timedelta(hours=20)).level


def test_no_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither program can begin then."""

    def fail(address: tuple[str, int]) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(machine.socket, "create_server", fail)
    found = machine._loopback()
    assert ("error", 75, True) == (found.level, found.code, "already in use" in found.words)


def test_no_room_for_temporary_files(tmp_path: Path) -> None:
    """Daemon and trainer meet there."""
    found = machine._temporary(tmp_path / "nowhere")
    assert ("error", 4) == (found.level, found.code)
    assert "TMPDIR" in found.advice


def test_what_training_may_take_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores and niceness are told, and the limits that the environment sets."""
    found = look({"PFL_THREADS": "2", "PFL_NICE": "10"}, tmp_path)
    assert f"niceness {os.getpriority(os.PRIO_PROCESS, 0)}" in found["processor"][0].words
    assert ["ok", "ok"] == [check.level for check in found["environment"]]
