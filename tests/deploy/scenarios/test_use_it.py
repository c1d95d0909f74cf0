"""The README's *Use it*, word for word, on a machine where a site has just finished a run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_common.app.config import settle
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import PROGRAMS, write_site

SECTION = (
    (Path(__file__).parents[3] / "README.md").read_text().partition("\n## Use it\n")[2].partition("\n## ")[0]
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the user works: the data folder of a site, whose state lies where pfl-client keeps it."""
    home = tmp_path_factory.mktemp("home")
    folders = [
        write_site(home / name, samples=24, seed=seed)
        for seed, name in enumerate(("hospital_a", "hospital_b"))
    ]
    words = {"method": "dualfed", "rounds": 1, "sites": 2, "backbone": "mlp", "state": home / "coordinator"}
    simulate(settle(ServerSettings, words, what="test"), folders, home / "state" / "pfl" / "sites")
    return home


def call(home: Path, *words: str) -> str:
    """What Python says with these words."""
    environment = {**os.environ, "XDG_STATE_HOME": str(home / "state"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_the_lines_of_python(home: Path) -> None:
    """At most ten of them; they name the method, its classes, its heads, and what each head says."""
    program = re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)
    assert program is not None
    assert len([line for line in program[1].splitlines() if line and not line.startswith("#")]) <= 10
    said = call(home, "-c", program[1])
    assert "dualfed ('a', 'b', 'c') ('global', 'personal')" in said
    assert 12 == said.count("personal ")


@pytest.mark.timeout(300)  # each command starts a program of its own, which loads torch
def test_the_commands(home: Path) -> None:
    """Each line that is indented, as it stands."""
    lines = re.findall(r"^    (pfl .*)$", SECTION.replace("```python", "\n```"), re.M)
    assert lines
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        call(home, "-c", PROGRAMS[program], *words)
    table = (home / "predictions.csv").read_text().splitlines()
    assert (
        "file,row,class,p:a,p:b,p:c,global.class,global.p:a,global.p:b,global.p:c,personal.class" in table[0]
    )
    assert 1 + 12 == len(table)
    assert (home / "hospital_a.pt2").stat().st_size > 1000
    assert (home / "hospital_a.md").read_text().startswith("# hospital_a.pt2")
    assert {"confusion.png", "calibration.png"} == {path.name for path in (home / "evaluation").iterdir()}
