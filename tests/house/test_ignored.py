"""What using the project leaves in its folder, and what version control is offered of it."""

import subprocess
from pathlib import Path

import pytest

from tests.house.skeleton import TOP
from tests.house.survey import list_files


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A repository that has our .gitignore and nothing else: an unpacked archive is none."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text((TOP / ".gitignore").read_text())
    return tmp_path


def ignored(repository: Path, paths: list[str]) -> list[str]:
    """Those of some paths that the .gitignore keeps out, whatever this machine's own settings keep out."""
    command = ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z"]
    asked = subprocess.run(
        command, cwd=repository, input="\0".join(paths), capture_output=True, text=True, check=False
    )
    assert asked.returncode in (0, 1), asked.stderr
    return [path for path in asked.stdout.split("\0") if path]


def test_what_the_readme_s_steps_write_stays_here(bare: Path) -> None:
    """Secrets above all, wherever they were written; data, models, reports."""
    left = [
        "hospital_a.join",
        "deploy/hospital_b.join",
        "data/mnist/train.npz",
        "digits/hand/test.npz",
        "hospital_a/train.npz",
        "pfl-state/federation/authority.key",
        "deploy/pfl-state/federation/authority.key",
        "pfl-simulation/coordinator/current",
        "report-dualfed-001/report.html",
    ]
    assert left == ignored(bare, left)


def test_nothing_of_ours_is_hidden(bare: Path) -> None:
    """A file of ours that were ignored would be missing from the next clone, once it was moved."""
    ours = [str(path) for path in list_files()]
    assert "client/pfl_client/data/__init__.py" in ours
    assert [] == ignored(bare, ours)
