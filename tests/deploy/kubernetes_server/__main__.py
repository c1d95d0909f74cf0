"""Shows the manifests to a real API server, or fetches a kubectl for those who only render them."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from tests.deploy.kubernetes_server import building, kubectl

NEEDED = {"cryptography": "cryptography", "pytest": "pytest", "yaml": "PyYAML"}
"""Modules for showing, and the packages that have them."""


def main() -> int:
    """What the command line asks for."""
    words = argparse.ArgumentParser(prog="tests/kubernetes", description=__doc__)
    words.add_argument("--kubectl", action="store_true", help="only fetch a kubectl and print where it is")
    if words.parse_args().kubectl:
        return say(str(kubectl.fetch()), code=0)
    if absent := " ".join(building.missing()):
        return say(f"left out: Debian's packages {absent} are missing: apt-get install {absent}", code=2)
    if absent := " ".join(package for module, package in NEEDED.items() if find_spec(module) is None):
        return say(f"left out: this Python lacks packages: pip install {absent}", code=2)
    # Only here: a kubectl is fetched before there is an environment, by a Python that has nothing installed.
    from tests.deploy.kubernetes_server.showing import show

    return show()


def say(line: str, *, code: int) -> int:
    """To the user who started the command, with the exit code it ends in."""
    print(line, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
