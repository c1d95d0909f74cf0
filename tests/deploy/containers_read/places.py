"""Where the containers of compose.yaml write: below a read-only root, each such place is a volume of its own kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from tests.deploy.containers_read.dockerfile import Dockerfile

Words = dict[str, Any]  # whatever YAML holds
KEPT = ("PFL_STATE", "HOME", "XDG_STATE_HOME")
"""Variables of our images that name what must outlive a container."""
STORES = {"prometheus": "--storage.tsdb.path", "alertmanager": "--storage.path"}
INVITATIONS = "/invitation"
GRAFANA = "/var/lib/grafana"
"""Where its image keeps what it knows; no option of ours says so."""


def mounts(service: Words) -> list[list[str]]:
    """What is mounted where: source, place, and perhaps ro."""
    return [mount.split(":") for mount in service.get("volumes", [])]


def complaints(services: dict[str, Words], images: Dockerfile) -> list[str]:
    """Every place that would be lost, or could not be written, or should not be."""
    found = [words for name, service in services.items() for words in _of_service(name, service, images)]
    return [*found, *_of_many(services, images)]


def kept_at(name: str, service: Words, images: Dockerfile) -> set[str]:
    """What a service keeps: paths as its command, its environment or its image has them."""
    if "build" in service:
        words = {**images.pairs(service["build"]["target"], "ENV"), **service.get("environment", {})}
        words["PFL_STATE"] = _option("--state", service) or words["PFL_STATE"]
        # An entry point of its own is the one-shot that leaves an invitation.
        return {words[variable] for variable in KEPT} | ({INVITATIONS} if "entrypoint" in service else set())
    return {_option(STORES[name], service) or "nowhere" if name in STORES else GRAFANA}


def _of_service(name: str, service: Words, images: Dockerfile) -> Iterator[str]:
    if "/tmp" not in [place.split(":")[0] for place in service.get("tmpfs", [])]:
        yield f"{name} has no memory at /tmp"
    for path in sorted(kept_at(name, service, images)):
        source, *rest = _mount(path, service)
        if not source or source.startswith(".") or rest[-1] == "ro":
            yield f"{name} keeps {path} in {source or 'its image'}, not in a volume that it may write"
    for path in _read_by(service, images):
        source, *rest = _mount(path, service)
        if not source or rest[-1] != "ro":
            yield f"{name} reads {path}, where nothing is mounted to be read only"


def _of_many(services: dict[str, Words], images: Dockerfile) -> Iterator[str]:
    """A volume has one owner; who only invites works on the coordinator's."""
    owners: dict[str, str] = {}
    for name, service in services.items():
        for path in kept_at(name, service, images) if not name.startswith("invite-") else ():
            source = _mount(path, service)[0]
            if owners.setdefault(source, name) != name:
                yield f"{name} and {owners[source]} keep what is theirs in one volume, {source}"


def _read_by(service: Words, images: Dockerfile) -> list[str]:
    """What a site is given and leaves as it is: its data and its invitation."""
    if service.get("build", {}).get("target") != "site":
        return []
    return [images.pairs("site", "ENV")["PFL_DATA"], _option("--join", service) or "nowhere"]


def _option(flag: str, service: Words) -> str | None:
    """What stands behind a flag, however it is joined to it."""
    words = " ".join(service.get("command", [])).replace("=", " ").split(" ")
    return words[words.index(flag) + 1] if flag in words else None


def _mount(path: str, service: Words) -> list[str]:
    """The innermost mount that has a path; what lies in the image itself comes from nowhere."""
    found = [one for one in mounts(service) if PurePosixPath(path).is_relative_to(one[1])]
    return max(found, key=lambda one: len(one[1]), default=["", "/"])
