"""An overlay as the objects it becomes, read from what `kubectl kustomize` prints."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.kubernetes_server.kubectl import fetched
from tests.deploy.support.tools import tool

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
OVERLAYS = ("all-in-one", "coordinator", "coordinator-keys", "experiment", "gpu", "site")
Object = dict[str, Any]


def kubectl() -> str:
    """The fetched one if there is one, else the one on the path; kustomize in those before 1.21 is too old."""
    found = fetched()
    path = str(found) if found else tool("kubectl", "kubectl of 1.21 or newer, or tests/kubernetes --kubectl")
    said = subprocess.run(
        [path, "version", "--client"], capture_output=True, text=True, timeout=30, check=False
    )
    version = re.search(r"v1\.(\d+)\.", said.stdout)
    if version is None or int(version[1]) < 21:
        pytest.skip(f"left out: {path} is older than 1.21 (package kubectl, or tests/kubernetes --kubectl)")
    return path


@cache
def rendered(overlay: str) -> str:
    """What `kubectl apply -k` would send."""
    command = [kubectl(), "kustomize", str(FOLDER / "overlays" / overlay)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == said.returncode, said.stderr
    assert "" == said.stderr
    return said.stdout


@cache
def parsed(overlay: str) -> str:
    """The overlay's objects, read once: YAML takes a hundred times as long as JSON."""
    yaml = pytest.importorskip("yaml", reason="left out: no module yaml (package PyYAML)")
    return json.dumps([item for item in yaml.safe_load_all(rendered(overlay)) if item])


def objects(overlay: str) -> list[Object]:
    """The overlay's objects, the caller's own to change."""
    items: list[Object] = json.loads(parsed(overlay))
    return items


def of_kind(items: list[Object], *kinds: str) -> list[Object]:
    """Those of some kinds."""
    return [item for item in items if item["kind"] in kinds]


def name_of(item: Object) -> str:
    """For complaints: StatefulSet/site."""
    return f"{item['kind']}/{item['metadata']['name']}"


def namespace_of(items: list[Object]) -> str:
    """The overlay's own namespace."""
    return str(of_kind(items, "Namespace")[0]["metadata"]["name"])


def pod_of(item: Object) -> Object:
    """The specification of a StatefulSet's pods."""
    return item["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def containers(pod: Object) -> list[Object]:
    """All containers of a pod, those that come first included."""
    return [*pod.get("initContainers", []), *pod["containers"]]
