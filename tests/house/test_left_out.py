"""What a run of the tests leaves out is named, also when several processes share the work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.skeleton import TOP

NEEDS = """
from tests.deploy.support.tools import tool

def test_of_a_program_that_nobody_has():
    tool("pfl-unheard-of", "unheard-of")
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_missing_program_is_named(workers: str, tmp_path: Path) -> None:
    """Its name and its package, in the words that the test left out with."""
    (tmp_path / "test_needs.py").write_text(NEEDS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-c", TOP / "pyproject.toml"]
    command += ["-p", "no:cacheprovider", "--rootdir", TOP, tmp_path / "test_needs.py"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        command, cwd=TOP, env=kept, capture_output=True, text=True, timeout=60, check=False
    )
    assert 0 == ended.returncode, ended.stdout
    assert "there is no program pfl-unheard-of (package unheard-of)" in ended.stdout
