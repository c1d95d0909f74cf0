"""However the demo ends, what it started has ended too, and what went wrong is said with its place."""

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from pfl_common.errors import DataError, RunFailed, StateError
from pfl_deploy.demo.make import play
from pfl_deploy.demo.plan import SAMPLE, Plan, choose_folder
from tests.deploy.demo.conftest import cut

PFL = "from pfl_deploy.cli import main; main()"


def left_running(place: Path) -> list[int]:
    """Processes of a demo that wrote to this place: its folder stands in their surroundings."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                surroundings = (process / "environ").read_bytes()
            except OSError:
                continue
            if f"XDG_STATE_HOME={place}".encode() in surroundings:
                found.append(int(process.name))
    return found


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """A folder for a demo; a test that fails leaves no program of it behind."""
    yield tmp_path / "out"
    for number in left_running(tmp_path / "out"):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes by /proc")
@pytest.mark.parametrize(
    ("number", "moment", "least"),
    [
        (signal.SIGINT, "round 1 of 500", 5),
        pytest.param(signal.SIGTERM, "sites start and enrol", 1, marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_everything(
    number: signal.Signals, moment: str, least: int, out: Path, tmp_path: Path
) -> None:
    """Ctrl-C while sites train or start: nothing is left running, the keys are gone, the logs are there."""
    data = cut(tmp_path / "data", sites=("mnist", "synth"), train=20, test=10)
    words = ["demo", "--data", str(data), "--out", str(out), "--rounds", "500"]
    with subprocess.Popen(
        [sys.executable, "-c", PFL, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as demo:
        assert demo.stdout is not None
        assert any(moment in line for line in demo.stdout)
        assert least <= len(left_running(out))
        demo.send_signal(number)
        said = demo.communicate(timeout=40)[1]
    assert 130 == demo.returncode
    assert "interrupted" in said
    assert "Traceback" not in said
    assert [] == left_running(out)
    assert ["logs"] == [path.name for path in out.iterdir()]


def test_a_site_that_cannot_start_is_named_with_its_words(out: Path, tmp_path: Path) -> None:
    """Broken data at one site: the error says which program, what it said, where its log is; all others end."""
    data = cut(tmp_path / "data", sites=("mnist", "synth"), train=20, test=10)
    (data / "synth" / "train.npz").write_bytes(b"no array")
    plan = Plan(data, out, rounds=1)
    plan.out.mkdir()
    with pytest.raises(RunFailed) as failure:
        play(plan, Console(file=io.StringIO()))
    assert re.match(r"synth ended with code 3\n", str(failure.value))
    assert "train.npz" in str(failure.value)
    assert str(plan.logs / "synth.log") in str(failure.value)
    assert [] == left_running(plan.out)


def test_a_folder_without_sites_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """--data must name the folder above the sites' folders."""
    plan = Plan(SAMPLE / "mnist", tmp_path / "out")
    plan.out.mkdir()
    with pytest.raises(DataError, match="0 data folders"):
        play(plan, Console(file=io.StringIO()))
    assert [] == list(plan.out.iterdir())


def test_what_lies_in_the_folder_is_not_written_over(tmp_path: Path) -> None:
    """--out must be new or empty."""
    (tmp_path / "mine").write_text("of value")
    with pytest.raises(StateError, match="is not empty"):
        choose_folder(tmp_path)
    assert (tmp_path / "new").resolve() == choose_folder(tmp_path / "new")
