"""What the restricted level of the Pod Security Standards asks of a pod, and what we ask beyond it."""

from __future__ import annotations

from tests.deploy.kubernetes_manifests.rendering import Object, containers, name_of, of_kind, pod_of

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SHARED = ("hostNetwork", "hostPID", "hostIPC")


def breaches(items: list[Object]) -> list[str]:
    """What the cluster would refuse, and what it would take although it should not be."""
    found = []
    for item in of_kind(items, "StatefulSet"):
        pod = pod_of(item)
        found += [f"{name_of(item)}: {words}" for words in _of_pod(pod)]
        for container in containers(pod):
            found += [f"{name_of(item)}/{container['name']}: {words}" for words in _of_container(container)]
    return found


def _of_pod(pod: Object) -> list[str]:
    context = pod.get("securityContext", {})
    wanted = {
        "may run as root": context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0,
        "has no seccomp profile": context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
        "opens private files to its group at each start": context.get("fsGroupChangePolicy")
        == "OnRootMismatch",
        "mounts a token": pod.get("automountServiceAccountToken") is False,
        "gets variables from Services": pod.get("enableServiceLinks") is False,
        # A volume of another group could not be written; one of no group belongs to root.
        "has volumes of another group": context.get("fsGroup") == context.get("runAsGroup", 0) > 0,
        "shares the node": not any(pod.get(name) for name in SHARED),
        "has a kind of volume that is not allowed": all(
            set(volume) - {"name"} <= VOLUMES for volume in pod.get("volumes", [])
        ),
    }
    return [words for words, well in wanted.items() if not well]


def _of_container(container: Object) -> list[str]:
    context, resources = container.get("securityContext", {}), container.get("resources", {})
    wanted = {
        "may gain privileges": context.get("allowPrivilegeEscalation") is False,
        "is privileged": not context.get("privileged"),
        "keeps capabilities": context.get("capabilities") == {"drop": ["ALL"]},
        "may write its root": context.get("readOnlyRootFilesystem") is True,
        "takes a port of the node": not any("hostPort" in port for port in container.get("ports", [])),
        "asks for no resources": {"cpu", "memory"} <= set(resources.get("requests", {})),
        "has no limit on memory": "memory" in resources.get("limits", {}),
    }
    return [words for words, well in wanted.items() if not well]
