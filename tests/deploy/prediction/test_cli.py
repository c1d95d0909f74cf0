"""The commands for a finished model tell their options without loading what they need."""

import subprocess
import sys

import pytest

from pfl_deploy.cli import main
from pfl_deploy.prediction import cli
from tests.words import check_clear, speak


@pytest.mark.parametrize("command", ["predict", "evaluate", "export"])
def test_help_is_light(command: str) -> None:
    """`pfl predict --help` does not load torch; its first line is what the command says of itself."""
    words = speak(main, command, "--help")
    check_clear(words, 0, str(getattr(cli, command).__doc__).split(":")[0])
    run = "import sys; from pfl_deploy.cli import main\ntry: main()\n"
    program = f"{run}except SystemExit: print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "False" == done.stdout.split()[-1]
