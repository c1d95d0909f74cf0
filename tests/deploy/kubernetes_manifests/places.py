"""Where the programs read and write: each path that they are told lies in a mount, and in one of the right kind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.deploy.kubernetes_manifests import page
from tests.deploy.kubernetes_manifests.mounts import (
    OWN,
    Mount,
    environment,
    every_container,
    flags,
    mount_of,
    mounts,
    where,
)
from tests.deploy.kubernetes_manifests.rendering import Object, namespace_of, of_kind, pod_of

KINDS = {
    "--state": {OWN},
    "--config": {"configMap"},
    "--join": {"secret"},
    "--data": {"persistentVolumeClaim", "emptyDir"},
}
NEEDED = {"pfl-server": ("--config", "--state"), "pfl-client": ("--data", "--state")}
"""What a program must be told: by itself it would look elsewhere than where the pod has it."""
HOMES = ("HOME", "XDG_STATE_HOME")
PATH = re.compile(r"(?<![^\s=])/[^\s;]+")


def reached(items: list[Object]) -> Iterator[str]:
    """Every path among a container's words lies in one of its mounts."""
    for item, container in every_container(items):
        words = " ".join([*container.get("command", []), *container.get("args", [])])
        for path in PATH.findall(words):
            if mount_of(path, item, container) is None:
                yield f"{where(item, container)}: nothing is mounted at {path}"


def told(items: list[Object]) -> Iterator[str]:
    """Settings, state, data and invitation are named, each in a volume of its kind."""
    for item, container in every_container(items):
        given = flags(container)
        for flag in NEEDED.get(container["command"][0], ()):
            if flag not in given:
                yield f"{where(item, container)}: no {flag}"
        for flag in sorted(KINDS.keys() & given.keys()):
            mount = mount_of(given[flag], item, container)
            kind = mount.kind if mount else "nothing"
            if kind not in KINDS[flag]:
                yield f"{where(item, container)}: {flag}={given[flag]} lies in {kind}: {sorted(KINDS[flag])}"


def guarded(items: list[Object]) -> Iterator[str]:
    """State can be written, and data cannot."""
    for item, container in every_container(items):
        for flag, wanted in (("--state", True), ("--data", False)):
            mount = mount_of(flags(container).get(flag, ""), item, container)
            if mount is not None and mount.writable != wanted:
                yield f"{where(item, container)}: {flag} is {'read-only' if wanted else 'open to writing'}"


def prepared(items: list[Object]) -> Iterator[str]:
    """What comes first writes where the programs look: data that nobody brings, state that is put back."""
    for item in of_kind(items, "StatefulSet"):
        first = pod_of(item).get("initContainers", [])
        written = {mount.volume for one in first for mount in mounts(item, one) if mount.writable}
        words = " ".join(word for one in first for word in one.get("args", []))
        for container in pod_of(item)["containers"]:
            data, state = (
                mount_of(flags(container).get(flag, ""), item, container) for flag in ("--data", "--state")
            )
            if data is not None and data.kind == "emptyDir" and data.volume not in written:
                yield f"{where(item, container)}: nobody fills {data.place}"
            if (
                state is not None
                and state.volume in written
                and f"{flags(container)['--state']}/" not in words
            ):
                yield f"{where(item, container)}: what is put back is not put into its --state"


def filled(items: list[Object]) -> Iterator[str]:
    """A file that is named is in what is mounted: a key of its ConfigMap, or of the Secret that the page makes."""
    for item, container in every_container(items):
        for path in _files_named(container):
            mount = mount_of(path, item, container)
            if mount is None or mount.kind not in ("configMap", "secret"):
                continue
            for key in sorted(_inside(path, mount, item) - _keys(mount, items)):
                yield f"{where(item, container)}: {path} wants {key}, which nobody puts there"


def homes(items: list[Object]) -> Iterator[str]:
    """What a program keeps for its user goes where it may write: the pod's word counts, else the image's."""
    for item in of_kind(items, "StatefulSet"):
        for container in pod_of(item)["containers"]:
            for name in HOMES:
                path = environment(container)[name]
                mount = mount_of(path, item, container)
                if mount is None or not mount.writable:
                    yield f"{where(item, container)}: {name} is {path}, where nothing can be written"


def met(items: list[Object]) -> Iterator[str]:
    """A site without an invitation looks where the coordinator of its pod leaves word of itself."""
    for item in of_kind(items, "StatefulSet"):
        every = pod_of(item)["containers"]
        left = [_meeting(item, one) for one in every if one["command"] == ["pfl-server"]]
        for one in every:
            alone = one["command"] == ["pfl-client"] and "--join" not in flags(one)
            if alone and _meeting(item, one) not in left:
                yield f"{where(item, one)}: no --join, and no coordinator leaves word where it looks"


CHECKS = (reached, told, guarded, prepared, filled, homes, met)


def _files_named(container: Object) -> Iterator[str]:
    given = flags(container)
    yield from (given[flag] for flag in ("--config", "--join") if flag in given)
    for word in [*container["command"], *container.get("args", [])]:
        # Scripts name files without a flag.
        yield from PATH.findall(word) if not word.startswith("--") else ()


def _inside(path: str, mount: Mount, item: Object) -> set[str]:
    """What a file is called in the volume, for each pod by its own name."""
    pods = [f"{item['metadata']['name']}-{number}" for number in range(item["spec"]["replicas"])]
    return {str(mount.inside(path)).replace("$(POD_NAME)", pod) for pod in pods}


def _keys(mount: Mount, items: list[Object]) -> set[str]:
    """The files of a ConfigMap or Secret as they are mounted."""
    if mount.kind == "configMap":
        found = [
            one for one in of_kind(items, "ConfigMap") if one["metadata"]["name"] == mount.source["name"]
        ]
        keys = {key for one in found for key in one["data"]}
    else:
        made = page.made_by(page.PAGE.read_text())
        keys = set(made.get(("Secret", namespace_of(items), mount.source["secretName"]), ()))
    chosen = mount.source.get("items")
    return keys if chosen is None else {one["path"] for one in chosen if one["key"] in keys}


def _meeting(item: Object, container: Object) -> tuple[str, str] | None:
    path = environment(container)["XDG_STATE_HOME"]
    mount = mount_of(path, item, container)
    return (mount.volume, str(mount.inside(path))) if mount else None
