"""A kubectl is fetched by a Python that has nothing installed, as it is on a machine that has not made anything yet."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.deploy.kubernetes_server.kubectl import PACKAGE
from tests.house.skeleton import TOP

PROGRAM = b"#!/bin/sh\necho a kubectl\n"


def bare(folder: Path) -> Path:
    """This interpreter without any package, as a program of its own: `tests/kubernetes` takes one word for it."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def packed(folder: Path) -> None:
    """The package as PyPI has it, with another program in its innermost archive."""
    name, version = PACKAGE.split("==")
    file = name.replace("-", "_").replace(".", "_")
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        archive.writestr("kubectl/kubectl", PROGRAM)
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        archive.addfile(entry, io.BytesIO(layer.getvalue()))
    about = f"{file}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{file}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{file}/layer@{version}.jsii.tgz", package.getvalue())
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


def test_it_is_fetched_with_nothing_installed(tmp_path: Path) -> None:
    """As `.ci/run` asks for it, from an index in a folder: it is unpacked, can be started, and its place is said."""
    python, cache = bare(tmp_path), tmp_path / "cache"
    packed(tmp_path)
    own = {"PFL_TEST_PYTHON": str(python), "PFL_KUBERNETES_CACHE": str(cache)}
    own |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    asked = {"env": {**kept, **own}, "cwd": tmp_path, "capture_output": True, "text": True, "timeout": 110}
    for module in ("pytest", "pip", "yaml"):
        said = subprocess.run([python, "-c", f"import {module}"], check=False, **asked)
        assert f"No module named '{module}'" in said.stderr

    said = subprocess.run([TOP / "tests" / "kubernetes", "--kubectl"], check=False, **asked)
    assert (f"{cache / 'kubectl'}\n", 0) == (said.stdout, said.returncode), said.stderr
    ran = subprocess.run([cache / "kubectl"], check=True, **asked)
    assert "a kubectl\n" == ran.stdout
