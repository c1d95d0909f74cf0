"""A container's words and mounts: which path lies in which volume, and what the file is called there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from tests.deploy.containers_read import dockerfile
from tests.deploy.kubernetes_manifests.rendering import FOLDER, Object, containers, name_of, of_kind, pod_of

OWN = "volumeClaimTemplate"
"""The kind of a volume that a StatefulSet makes for each of its pods, and that outlives them."""
WRITTEN = {OWN, "emptyDir"}
IMAGES = FOLDER.parent / "docker" / "Dockerfile"


@dataclass(frozen=True)
class Mount:
    """A part of a container's file system that is not its image's."""

    place: PurePosixPath
    volume: str
    kind: str
    source: Object
    part: str
    writable: bool

    def inside(self, path: str) -> PurePosixPath:
        """What a path of the container is called in the volume."""
        return PurePosixPath(self.part) / PurePosixPath(path).relative_to(self.place)


def every_container(items: list[Object]) -> Iterator[tuple[Object, Object]]:
    """All containers with their workloads."""
    for item in of_kind(items, "StatefulSet"):
        for container in containers(pod_of(item)):
            yield item, container


def where(item: Object, container: Object) -> str:
    """For complaints: StatefulSet/site/site."""
    return f"{name_of(item)}/{container['name']}"


def flags(container: Object) -> dict[str, str]:
    """What stands behind each `--flag=`."""
    words = [word for word in container.get("args", []) if word.startswith("--") and "=" in word]
    return dict(word.split("=", 1) for word in words)


def environment(container: Object) -> dict[str, str]:
    """The variables of one of our images, and what the pod puts over them."""
    target = container["image"].split(":")[0].removeprefix("pfl-")
    return {
        **_images().pairs(target, "ENV"),
        **{one["name"]: one.get("value", "") for one in container["env"]},
    }


def mounts(item: Object, container: Object) -> list[Mount]:
    """All of a container's, with what is known of their volumes."""
    volumes = {volume["name"]: volume for volume in pod_of(item).get("volumes", [])}
    claims = {claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])}
    found = []
    for one in container.get("volumeMounts", []):
        name = one["name"]
        kinds = [OWN] if name in claims else [word for word in volumes.get(name, {}) if word != "name"]
        kind = kinds[0] if kinds else "nothing"
        source = volumes.get(name, {}).get(kind) or {}
        part = one.get("subPathExpr", one.get("subPath", ""))
        writable = kind in WRITTEN and not one.get("readOnly")
        found.append(Mount(PurePosixPath(one["mountPath"]), name, kind, source, part, writable))
    return found


def mount_of(path: str, item: Object, container: Object) -> Mount | None:
    """The innermost mount that has a path."""
    found = [one for one in mounts(item, container) if PurePosixPath(path).is_relative_to(one.place)]
    return max(found, key=lambda one: len(one.place.parts), default=None)


@cache
def _images() -> dockerfile.Dockerfile:
    return dockerfile.read(IMAGES.read_text())
