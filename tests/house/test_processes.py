"""What a fresh process loads: the rule about imports, seen from the running program."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = "import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
HELP = """
import sys
from {package}.cli import main
sys.argv = ["program", "--help"]
try:
    main()
finally:
    print("\\nLOADED", *sorted({{name.split(".")[0] for name in sys.modules}}))
"""


def load(program: str) -> set[str]:
    """Run a program in a fresh interpreter; the top-level names of all modules it had loaded at its end."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_the_coordinator_knows_no_client() -> None:
    """`pfl-server --help` loads nothing of the client."""
    assert set() == load(HELP.format(package="pfl_server")) & {"pfl_client", "pfl_deploy"}


def test_the_site_knows_no_server_and_stays_light() -> None:
    """`pfl-client --help` loads nothing of the server, and nothing heavy."""
    assert set() == load(HELP.format(package="pfl_client")) & {"pfl_server", "pfl_deploy", "torch", "numpy"}


@pytest.mark.parametrize("module", ["daemon", "transport", "ipc"])
def test_the_daemon_really_stays_light(module: str) -> None:
    """Contracts read the text; this looks at the process, where a package's first file is loaded as well."""
    assert set() == load(f"import pfl_client.{module}; {LOADED}") & {
        "torch",
        "torchvision",
        "numpy",
        "pfl_server",
    }


def test_the_trainer_really_has_no_network() -> None:
    """The trainer's process never loads grpc."""
    assert set() == load(f"import pfl_client.trainer; {LOADED}") & {"grpc", "pfl_server"}
