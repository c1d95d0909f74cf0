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


@pytest.mark.parametrize("module", ["daemon.loop", "connection.grpc_link", "trainer_process.process"])
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


@pytest.mark.parametrize("word", ["--help", "-h", "--version"])
@pytest.mark.parametrize("package", ["pfl_server", "pfl_client", "pfl_deploy"])
def test_what_is_asked_in_a_hurry_is_answered_without_torch(package: str, word: str) -> None:
    """Help and version load neither torch nor grpc, which take seconds on a cold disk."""
    program = HELP.format(package=package).replace("--help", word)
    assert set() == load(program) & {"torch", "numpy", "grpc", "matplotlib"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pfl-server --method fedc", ["fedcac", "fedcp"]),
        ("pfl-server --method dualfed --set la", ["lambda="]),
        ("pfl-server --method fedcac --set bn_", ["bn_policy=", "bn_stats="]),
        ("pfl-server --preset dom", ["domainnet"]),
        ("pfl-server --backbone resnet1", ["resnet10", "resnet18"]),
        ("pfl-server --candidates r", ["roster"]),
        ("pfl-server --list-methods lo", ["local"]),
    ],
)
def test_a_shell_completes_without_torch(words: str, expected: list[str]) -> None:
    """At each touch of the key a process starts: it has to be a light one."""
    program = f"""
import os, sys
from pfl_server.cli import main
os.environ |= {{"_PFL_SERVER_COMPLETE": "complete_bash", "COMP_WORDS": {words!r}}}
os.environ["COMP_CWORD"] = "{len(words.split()) - 1}"
sys.argv = ["pfl-server"]
try:
    main()
except SystemExit:
    pass
finally:
    print("\\nLOADED", *sorted({{name.split(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    lines = done.stdout.split("\n")
    assert expected == [line for line in lines if line and not line.startswith("LOADED")], done.stderr
    assert set() == set(lines[-2].split()) & {"torch", "numpy", "grpc"}
