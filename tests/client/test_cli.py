"""`pfl-client`: what an engineer may type, and what is said to what nobody can type."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from pfl_client.cli import main
from pfl_client.onboarding import preflight
from pfl_client.settings import ClientSettings
from pfl_common.app.config import layered, settle
from pfl_common.errors import Unavailable
from pfl_common.identity import Addresses, Authority, Found, Ledger, discovery, new_secret, write_join_file
from tests.client.support.runs import write_arrays
from tests.words import Spoken, check_clear, options_in, speak


def join(*words: str | Path) -> Spoken:
    """The program with these words."""
    return speak(main, *words)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own, without settings from outside."""
    for name in [name for name in os.environ if name.startswith("PFL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def folder(home: Path) -> Path:
    """A data folder with which nothing is wrong."""
    return write_arrays(home / "hospital_a")


def publish(home: Path, name: str, *, host: str = "127.0.0.1") -> Found:
    """A coordinator that seems to run: this test's process has its number."""
    authority = Authority.open_or_create(home / name / "federation", now=datetime.now(UTC))
    found = Found(
        federation_id=authority.federation_id,
        addresses=Addresses(f"{host}:1", f"{host}:2"),
        ca_pem=authority.ca_pem,
        pid=os.getpid(),
        state_folder=home / name,
        secret=new_secret(),
    )
    discovery.publish(found)
    return found


@pytest.mark.parametrize(
    ("words", "code", "phrases"),
    [
        ((), 2, ("no data folder was named", "--data ./hospital_a")),
        (("--data", "nowhere"), 3, ("--data nowhere is no folder", "expected: a folder", "check the path")),
        (("--data", ".", "--trainer", "hot"), 2, ("setting 'trainer' is 'hot'", "'warm' or 'per-task'")),
        (("--data", ".", "--name", "Hospital A"), 2, ("a site called 'Hospital A'", "--name hospital_a")),
        (("--data", ".", "--name", "operator"), 2, ("a site called 'operator'", "reserved")),
        (("--dat", "."), 2, ("there is no option --dat", "did you mean --data", "pfl-client --help")),
        (("--data", ".", "--log-format", "xml"), 2, ("no log format 'xml'", "auto, json, text")),
        (
            ("--data", ".", "--http-port", "99999"),
            2,
            ("setting 'http_port' is 99999", "a whole number from 0 to 65535"),
        ),
        (
            ("--data", ".", "--http-port", "-1"),
            2,
            ("setting 'http_port' is -1", "a whole number from 0 to 65535"),
        ),
        (("--data", ".", "--most-bad", "10"), 2, ("setting 'most_bad' is 10", "a number from 0 to 1")),
        (("--data", ".", "--wait", "-1"), 2, ("setting 'wait' is -1", "a number from 0 to 2592000")),
        (("--data", ".", "--wait", "inf"), 2, ("setting 'wait' is inf", "a number from 0")),
    ],
)
def test_a_wrong_word_ends_the_program(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, phrases: tuple[str, ...]
) -> None:
    """What is wrong is named, before anything is dialled."""
    monkeypatch.chdir(home)
    check_clear(join(*words), code, *phrases)


def test_the_help_says_what_is_taken_if_nothing_is_said() -> None:
    """As the settings have it; what depends on the machine is said in words."""
    said = join("--help")
    by_itself = {
        "device": "auto",
        "threads": "0",
        "nice": "0",
        "trainer": "warm",
        "cache_limit": "20G",
        "most_bad": "0.1",
        "http_host": "127.0.0.1",
        "http_port": "0",
    }
    assert by_itself | {"log_format": "text"} == options_in(said)
    assert "the user's state directory" in said.text
    assert "0 takes a free one" in said.text


def test_a_wrong_setting_in_the_file(home: Path, folder: Path) -> None:
    """The file is checked as the flags are."""
    (home / "site.toml").write_text("strict_dat = true\n")
    said = join("--data", folder, "--config", home / "site.toml")
    check_clear(said, 2, "pfl-client: there is no setting 'strict_dat'", "did you mean 'strict_data'?")


def test_the_log_format_may_come_from_anywhere(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the environment or the file as every other setting; the flag wins."""
    monkeypatch.setenv("PFL_LOG_FORMAT", "yaml")
    check_clear(join("--data", folder), 2, "no log format 'yaml'")
    (home / "site.toml").write_text('log_format = "toml"\n')
    check_clear(join("--data", folder, "--config", home / "site.toml"), 2, "no log format 'toml'")
    check_clear(
        join("--data", folder, "--log-format", "json", "--wait", "0"), 75, "no coordinator of this user runs"
    )


def test_no_coordinator(folder: Path) -> None:
    """Without one on this machine the two ways on are named, at once if nobody is to be waited for."""
    said = join("--data", folder, "--wait", "0")
    check_clear(said, 75, "no coordinator of this user runs", "pfl-server", "--join FILE")
    assert "waiting" not in said.text


def test_no_coordinator_within_the_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it is waited for is said at once, with how long; then the same words as without waiting."""
    monkeypatch.setattr(preflight, "LOOK_SOON_SECONDS", 0.01)
    said = join("--data", folder, "--wait", "0.1")
    check_clear(said, 75, "the coordinator is not there yet, waiting for it", "for_seconds=0.1")
    assert 2 == said.text.count("no coordinator of this user runs"), "where the wait began, and as it ended"


async def test_one_started_together_with_its_sites_is_found_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for ten times a second at first, later twice."""
    looks: list[float] = []
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def ask() -> None:
        looks.append(round(now, 1))
        raise Unavailable("nobody is here")

    loop = SimpleNamespace(time=lambda: now)
    monkeypatch.setattr(preflight, "asyncio", SimpleNamespace(sleep=sleep, get_running_loop=lambda: loop))
    with pytest.raises(Unavailable):
        await preflight.wait(ask, Unavailable("nobody is here"), seconds=8.0)
    assert [0.1, 0.2, 0.3] == looks[:3]
    assert [0.5, 0.5] == [round(later - look, 1) for look, later in pairwise(looks[-4:-1])]


@pytest.mark.parametrize("file", ["", "notes.txt"])
def test_wrong_data_are_not_waited_with(home: Path, file: str) -> None:
    """They are looked at before a coordinator that is not there is waited for."""
    (home / "hospital_b").mkdir()
    if file:
        (home / "hospital_b" / file).touch()
    said = join("--data", home / "hospital_b")
    check_clear(said, 3, "the data folder")
    assert "waiting" not in said.text


@pytest.mark.parametrize(
    ("words", "seconds"),
    [((), 60.0), (("join",), 0.0), (("join", "wait"), 7.0), (("wait",), 7.0)],
    ids=["its own machine", "invited", "invited and told", "told"],
)
def test_how_long_a_coordinator_is_waited_for(words: tuple[str, ...], seconds: float) -> None:
    """A minute for the one of this machine, which may be the next terminal's; no invited site waits unasked."""
    given: dict[str, Path | float] = {"join": Path("a.join"), "wait": 7.0}
    assert seconds == ClientSettings(**{word: given[word] for word in words}).wait_seconds


def test_two_coordinators(home: Path, folder: Path) -> None:
    """With two the program lists them and asks which; a wrong answer lists them again."""
    one, other = publish(home, "one"), publish(home, "other")
    listed = (one.described, other.described, "--server ")
    check_clear(join("--data", folder), 2, "2 running", *listed)  # no wait makes them one
    check_clear(join("--data", folder, "--server", "nobody"), 2, "that fits --server nobody", *listed)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-name.localhost.invalid"])
def test_a_coordinator_that_does_not_answer(home: Path, folder: Path, host: str) -> None:
    """Its enrolment port is named, and what may be in the way; so is a name that leads nowhere."""
    found = publish(home, "one", host=host)
    said = join("--data", folder, "--wait", "0")
    check_clear(said, 75, "enrolment port does not answer", found.addresses.enrolment, "firewall")


@pytest.mark.parametrize(
    ("content", "phrases"),
    [
        (None, ("no file", "pfl invite NAME")),
        ("hello", ("expected:", "pfl invite")),
        ('{"format": "pfl join file 1", "site": "a', ("is damaged", "expected:")),
    ],
)
def test_a_file_that_is_no_invitation(
    home: Path, folder: Path, content: str | None, phrases: tuple[str, ...]
) -> None:
    """A missing, foreign or cut file is named with where a right one comes from."""
    file = home / "hospital_a.join"
    if content is not None:
        file.write_text(content)
    check_clear(join("--data", folder, "--join", file), 2, str(file), *phrases)


def test_another_name_than_the_invited_one(home: Path, folder: Path) -> None:
    """Who is invited under one name cannot take another."""
    found, now, file = publish(home, "one"), datetime.now(UTC), home / "hospital_a.join"
    ledger = Ledger(found.state_folder / "invitations", found.ca_pem)
    write_join_file(ledger.invite("hospital_a", now, addresses=found.addresses), file)
    said = join("--data", folder, "--join", file, "--name", "hospital_b")
    check_clear(said, 2, "--name is 'hospital_b', the invitation is for 'hospital_a'", "leave --name out")


def test_a_state_folder_that_cannot_be(home: Path, folder: Path) -> None:
    """A place where no folder can be made is named with what to do."""
    publish(home, "one")
    (home / "file").touch()
    said = join("--data", folder, "--state", home / "file" / "sites")
    check_clear(said, 4, f"the state folder {home}/file/sites", "--state")


def test_what_training_said_may_be_kept_from_anywhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told unless a file, the environment or the flag says no; the flag wins; what is neither yes nor no is refused."""
    (home / "site.toml").write_text("tell_diagnostics = false\n")

    def read(flag: bool | None = None, file: Path | None = None) -> bool:
        given = layered(ClientSettings, {"tell_diagnostics": flag}, file, prefix="PFL_")
        return settle(ClientSettings, given, what="pfl-client").tell_diagnostics

    assert (True, False, True) == (read(), read(file=home / "site.toml"), read(True, home / "site.toml"))
    monkeypatch.setenv("PFL_TELL_DIAGNOSTICS", "false")
    assert (False, True) == (read(), read(True))
    monkeypatch.setenv("PFL_TELL_DIAGNOSTICS", "seldom")
    check_clear(join("--data", home), 2, "setting 'tell_diagnostics' is 'seldom'")


def test_a_waiting_site_is_light() -> None:
    """Its program loads neither torch nor the authority nor what it has no use for; readers come with the first run."""
    unwanted = {"torch", "numpy", "sqlite3", "statistics", "pfl_common.identity.authority"}
    code = (
        "import sys, pfl_client.cli, pfl_client.process, pfl_common.spec.run as run;"
        f"print(sorted({unwanted} & set(sys.modules)), run._specs.cache_info().currsize)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[] 0" == said.stdout.strip()
