"""What no schema sees: whether the objects of an overlay fit each other. Each check gives its complaints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.deploy.kubernetes_manifests import page, places, traffic
from tests.deploy.kubernetes_manifests.rendering import (
    Object,
    containers,
    name_of,
    namespace_of,
    of_kind,
    pod_of,
)

Check = Callable[[list[Object]], Iterable[str]]
PORTS = {"control": "--port", "enrolment": "--enrol-port", "metrics": "--http-port"}
HOSTS = {"control": "--host", "enrolment": "--host", "metrics": "--http-host"}
PATIENCE = {"startupProbe": 300, "readinessProbe": 15, "livenessProbe": 120}
"""Seconds: a start reads gigabytes of checkpoint, and a restart in mid-round costs minutes."""
CARD = "nvidia.com/gpu"
SOURCES = {
    "configMap": ("ConfigMap", "name"),
    "secret": ("Secret", "secretName"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}


def complaints(items: list[Object]) -> list[str]:
    """All that does not fit."""
    return [words for check in CHECKS for words in check(items)]


def selectors(items: list[Object]) -> Iterator[str]:
    """Whatever selects pods selects some; a StatefulSet its own."""
    workloads = of_kind(items, "StatefulSet")
    for item in workloads:
        if not _selected(item["spec"]["selector"]["matchLabels"], [item]):
            yield f"{name_of(item)} does not select its own pods"
    for item in of_kind(items, "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"):
        if not _selected(_selector(item), workloads):
            yield f"{name_of(item)} selects no pod"
    for item in of_kind(items, "ServiceMonitor"):
        if not _services_of(item, items):
            yield f"{name_of(item)} selects no Service"


def protected(items: list[Object]) -> Iterator[str]:
    """Each kind of pod has a budget for disruptions, but where there is one pod for trying; no drain waits for ever."""
    budgets = of_kind(items, "PodDisruptionBudget")
    for item in of_kind(items, "StatefulSet"):
        bound = any(_selected(_selector(one), [item]) for one in budgets)
        if item["metadata"]["name"] != "all-in-one" and not bound:
            yield f"{name_of(item)} has no budget for disruptions"
    for item in budgets:
        allowed = item["spec"].get("maxUnavailable")
        if not isinstance(allowed, int) or allowed < 1:
            yield f"{name_of(item)} lets {allowed} pods be moved: a drain of their node would not end"


def ports(items: list[Object]) -> Iterator[str]:
    """Each port is named, is the one the program listens on, and is used; a port that is named is found."""
    for item in of_kind(items, "StatefulSet"):
        used = _used_ports(item, items)
        for container in containers(pod_of(item)):
            yield from _odd_ports(container, used, f"{name_of(item)}/{container['name']}")
    for service in of_kind(items, "Service"):
        for item in _selected(_selector(service), of_kind(items, "StatefulSet")):
            named = {port["name"]: port["containerPort"] for port in _ports(item)}
            for port in service["spec"]["ports"]:
                # The number too: join files carry the coordinator's own, whatever stands before it.
                if named.get(port["targetPort"]) != port["port"]:
                    yield f"{name_of(service)}: port {port['name']} leads nowhere"


def scraped(items: list[Object]) -> Iterator[str]:
    """Where monitors are, every port with metrics has one, and no monitor looks for a port that is not there."""
    monitors = of_kind(items, "ServiceMonitor", "PodMonitor")
    for item in of_kind(items, "StatefulSet") if monitors else []:
        have = {port["name"] for port in _ports(item) if port["name"].startswith("metrics")}
        asked = {port for monitor in monitors for port in _scrapes(monitor, item, items)}
        if have != asked:
            yield f"{name_of(item)} has metrics on {sorted(have)}, and monitors ask {sorted(asked)}"


def probed(items: list[Object]) -> Iterator[str]:
    """Every container that stays is asked whether it started, is ready and lives, at a port of its own."""
    paths = {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    for item in of_kind(items, "StatefulSet"):
        for container in pod_of(item)["containers"]:
            own = {port["name"] for port in container.get("ports", [])}
            for probe, path in paths.items():
                asked = container.get(probe, {}).get("httpGet", {})
                if asked.get("path") != path or asked.get("port") not in own:
                    yield f"{name_of(item)}/{container['name']}: {probe} asks {asked}"


def waited_for(items: list[Object]) -> Iterator[str]:
    """No probe gives up on a program that is only slow, nor at the first answer that is missing."""
    for item in of_kind(items, "StatefulSet"):
        for container in pod_of(item)["containers"]:
            for probe, least in PATIENCE.items():
                asked = container.get(probe, {})
                # What Kubernetes takes where nothing is said.
                period, times = asked.get("periodSeconds", 10), asked.get("failureThreshold", 3)
                if times < 2 or period * times < least:
                    given = f"{times} times in {period * times} s"
                    yield f"{name_of(item)}/{container['name']}: {probe} asks {given}, not twice in {least} s"


def carded(items: list[Object]) -> Iterator[str]:
    """Who is to train on a card asks the cluster for one and may go where they are; nobody else takes one."""
    for item in of_kind(items, "StatefulSet"):
        borne = {one["key"] for one in pod_of(item).get("tolerations", [])}
        for container in pod_of(item)["containers"]:
            meant = "--device=cuda" in container["args"]
            limit = container["resources"].get("limits", {}).get(CARD, "0")
            if meant != (str(limit) != "0") or meant != (CARD in borne):
                yield f"{name_of(item)}/{container['name']}: --device=cuda is {meant}, {CARD} is {limit}"


def mounts(items: list[Object]) -> Iterator[str]:
    """Each mount has its volume, each volume its mount, and what it holds exists or is made by the operator's page."""
    home, by_hand = namespace_of(items), page.made_by(page.PAGE.read_text())
    made = {(item["kind"], item["metadata"]["name"]) for item in items}
    made |= {(kind, name) for kind, space, name in by_hand if space == home}
    for item in of_kind(items, "StatefulSet"):
        pod = pod_of(item)
        claims = {claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])}
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        mounted = {mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", [])}
        for name in sorted(mounted ^ (claims | set(volumes))):
            yield f"{name_of(item)}: volume {name} is not both there and mounted"
        for volume in volumes.values():
            for source, (kind, field) in SOURCES.items():
                name = volume.get(source, {}).get(field)
                if name and (kind, name) not in made:
                    yield f"{name_of(item)}: nobody makes the {kind} {name}"


def named(items: list[Object]) -> Iterator[str]:
    """What a StatefulSet names exists: its Service, headless, and its ServiceAccount, without a token."""
    services = {item["metadata"]["name"]: item["spec"] for item in of_kind(items, "Service")}
    accounts = {item["metadata"]["name"]: item for item in of_kind(items, "ServiceAccount")}
    for item in of_kind(items, "StatefulSet"):
        if services.get(item["spec"]["serviceName"], {}).get("clusterIP") != "None":
            yield f"{name_of(item)}: {item['spec']['serviceName']} is no headless Service"
        account = pod_of(item).get("serviceAccountName")
        if account and accounts.get(account, {}).get("automountServiceAccountToken") is not False:
            yield f"{name_of(item)}: {account} is no ServiceAccount without a token"


def placed(items: list[Object]) -> Iterator[str]:
    """Everything lies in the overlay's own namespace, which refuses pods above the restricted level."""
    spaces = of_kind(items, "Namespace")
    home = namespace_of(items)
    if spaces[0]["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
        yield f"the namespace {home} takes any pod"
    for item in items:
        if item not in spaces and item["metadata"].get("namespace") != home:
            yield f"{name_of(item)} is not in {home}"


def replaceable(items: list[Object]) -> Iterator[str]:
    """A pod that never becomes ready is replaced by the one that a mended manifest makes."""
    for item in of_kind(items, "StatefulSet"):
        if item["spec"].get("podManagementPolicy") != "Parallel":
            yield f"{name_of(item)} waits for a broken pod before it mends it"


CHECKS: tuple[Check, ...] = (
    selectors, protected, ports, scraped, probed, waited_for, mounts, named, placed, replaceable, carded,
    *places.CHECKS, *traffic.CHECKS,
)  # fmt: skip


def _selector(item: Object) -> dict[str, str]:
    spec = item["spec"]
    if item["kind"] == "Service":
        return dict(spec["selector"])
    selector = spec["podSelector"] if item["kind"] == "NetworkPolicy" else spec["selector"]
    return dict(selector.get("matchLabels", {}))


def _selected(labels: dict[str, str], workloads: list[Object]) -> list[Object]:
    return [
        one for one in workloads if labels.items() <= one["spec"]["template"]["metadata"]["labels"].items()
    ]


def _services_of(monitor: Object, items: list[Object]) -> list[Object]:
    wanted = _selector(monitor).items()
    return [one for one in of_kind(items, "Service") if wanted <= one["metadata"].get("labels", {}).items()]


def _ports(item: Object) -> list[Object]:
    return [port for container in containers(pod_of(item)) for port in container.get("ports", [])]


def _scrapes(monitor: Object, item: Object, items: list[Object]) -> Iterator[str]:
    """The names of this workload's ports that a monitor asks."""
    if monitor["kind"] == "PodMonitor":
        if _selected(_selector(monitor), [item]):
            yield from (end["port"] for end in monitor["spec"]["podMetricsEndpoints"])
        return
    for service in _services_of(monitor, items):
        targets = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
        if _selected(_selector(service), [item]):
            yield from (targets.get(end["port"], "none") for end in monitor["spec"]["endpoints"])


def _used_ports(item: Object, items: list[Object]) -> set[str]:
    """Ports of a workload that a Service leads to, a monitor asks or a probe asks."""
    services = [one for one in of_kind(items, "Service") if _selected(_selector(one), [item])]
    used = {port["targetPort"] for service in services for port in service["spec"]["ports"]}
    for container in pod_of(item)["containers"]:
        used |= {container[probe]["httpGet"]["port"] for probe in container if probe.endswith("Probe")}
    return used


def _odd_ports(container: Object, used: set[str], where: str) -> Iterator[str]:
    given = dict(word.split("=", 1) for word in container.get("args", []) if "=" in word)
    for port in container.get("ports", []):
        kind = port["name"].split("-")[0]
        flag, host = PORTS.get(kind, ""), HOSTS.get(kind, "")
        if given.get(flag) != str(port["containerPort"]):
            yield f"{where}: port {port['name']} is {port['containerPort']}, {flag} is {given.get(flag)}"
        # Other pods, and the kubelet's probes, come to the pod's address.
        if given.get(host) != "0.0.0.0":
            yield f"{where}: port {port['name']} is closed to other pods, {host} is {given.get(host)}"
        if port["name"] not in used:
            yield f"{where}: nobody uses port {port['name']}"
