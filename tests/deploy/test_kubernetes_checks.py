"""The checks of the manifests are able to fail: each is shown one thing that is wrong, and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy.kubernetes_manifests import meaning, policies
from tests.deploy.kubernetes_manifests.rendering import Object, name_of, objects
from tests.deploy.kubernetes_manifests.restricted import breaches

Path = tuple[str | int, ...]
POD: Path = ("spec", "template", "spec")
SITE: Path = (*POD, "containers", 0)
REMOVE = object()

WRONG: dict[str, tuple[str, Path, Any, str]] = {
    "a StatefulSet of other pods": (
        "StatefulSet/site", ("spec", "selector", "matchLabels", "app.kubernetes.io/component"), "place",
        "StatefulSet/site does not select its own pods",
    ),
    "a Service of nobody": (
        "Service/coordinator", ("spec", "selector", "app.kubernetes.io/name"), "pfl-net",
        "Service/coordinator selects no pod",
    ),
    "a policy of nobody": (
        "NetworkPolicy/site-to-dns", ("spec", "podSelector", "matchLabels", "app.kubernetes.io/name"), "net",
        "NetworkPolicy/site-to-dns selects no pod",
    ),
    "a budget of nobody": (
        "PodDisruptionBudget/site", ("spec", "selector", "matchLabels", "app.kubernetes.io/name"), "net",
        "StatefulSet/site has no budget",
    ),
    "a monitor of nobody": (
        "ServiceMonitor/coordinator", ("spec", "selector", "matchLabels", "pfl/serves"), "numbers",
        "ServiceMonitor/coordinator selects no Service",
    ),
    "a Service to a port without a name": (
        "Service/coordinator", ("spec", "ports", 0, "targetPort"), "grpc", "port control leads nowhere"
    ),
    "a Service at another number": (
        "Service/coordinator", ("spec", "ports", 1, "port"), 443, "port enrolment leads nowhere"
    ),
    "a port on this pod alone": (
        "StatefulSet/coordinator", (*SITE, "args", 5), "--http-host=127.0.0.1", "port metrics is closed to other pods"
    ),
    "a pod that has to be well to be mended": (
        "StatefulSet/coordinator", ("spec", "podManagementPolicy"), "OrderedReady", "waits for a broken pod"
    ),
    "a port nobody listens on": (
        "StatefulSet/site", (*SITE, "ports", 0, "containerPort"), 7480, "port metrics is 7480, --http-port is 7481"
    ),
    "a probe at no port": (
        "StatefulSet/site", (*SITE, "livenessProbe", "httpGet", "port"), "health", "livenessProbe asks"
    ),
    "a probe that stays ready while it drains": (
        "StatefulSet/coordinator", (*SITE, "readinessProbe", "httpGet", "path"), "/healthz", "readinessProbe asks"
    ),
    "a monitor at no port": (
        "PodMonitor/site", ("spec", "podMetricsEndpoints", 0, "port"), "http", "monitors ask ['http']"
    ),
    "a volume that is not there": (
        "StatefulSet/site", (*SITE, "volumeMounts", 0, "name"), "vault", "volume vault is not both"
    ),
    "a ConfigMap nobody makes": (
        "StatefulSet/coordinator", (*POD, "volumes", 0, "configMap", "name"), "settings",
        "nobody makes the ConfigMap settings",
    ),
    "a Secret nobody makes": (
        "StatefulSet/site", (*POD, "volumes", 1, "secret", "secretName"), "invitation",
        "nobody makes the Secret invitation",
    ),
    "a ServiceAccount nobody makes": (
        "StatefulSet/site", (*POD, "serviceAccountName"), "default", "default is no ServiceAccount"
    ),
    "a governing Service with an address": (
        "Service/site", ("spec", "clusterIP"), REMOVE, "site is no headless Service"
    ),
    "a namespace that takes any pod": (
        "Namespace/pfl-experiment", ("metadata", "labels", "pod-security.kubernetes.io/enforce"), "baseline",
        "takes any pod",
    ),
    "an object elsewhere": (
        "Service/site", ("metadata", "namespace"), "default", "Service/site is not in pfl-experiment"
    ),
}  # fmt: skip

UNSAFE: dict[str, tuple[Path, Any, str]] = {
    "root": ((*POD, "securityContext", "runAsUser"), 0, "may run as root"),
    "no seccomp": ((*POD, "securityContext", "seccompProfile"), REMOVE, "has no seccomp profile"),
    "group on every start": ((*POD, "securityContext", "fsGroupChangePolicy"), REMOVE, "opens private files"),
    "token": ((*POD, "automountServiceAccountToken"), True, "mounts a token"),
    "service links": ((*POD, "enableServiceLinks"), REMOVE, "gets variables from Services"),
    "host network": ((*POD, "hostNetwork"), True, "shares the node"),
    "a folder of the node": ((*POD, "volumes", 0), {"name": "data", "hostPath": {"path": "/srv"}}, "not allowed"),
    "escalation": ((*SITE, "securityContext", "allowPrivilegeEscalation"), REMOVE, "may gain privileges"),
    "privileged": ((*SITE, "securityContext", "privileged"), True, "is privileged"),
    "a capability": ((*SITE, "securityContext", "capabilities", "add"), ["NET_ADMIN"], "keeps capabilities"),
    "a writable root": ((*SITE, "securityContext", "readOnlyRootFilesystem"), False, "may write its root"),
    "a port of the node": ((*SITE, "ports", 0, "hostPort"), 7481, "takes a port of the node"),
    "no memory limit": ((*SITE, "resources", "limits"), REMOVE, "has no limit on memory"),
    "no requests": ((*SITE, "resources", "requests"), REMOVE, "asks for no resources"),
    "a home that is read-only": ((*SITE, "env", 1, "value"), "/root", "has its home where nothing can be written"),
}  # fmt: skip


@pytest.fixture
def items() -> list[Object]:
    """A good overlay, which holds every kind of object there is."""
    return objects("experiment")


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_seen(wrong: str, items: list[Object]) -> None:
    """One thing changed in a good overlay is complained about."""
    name, path, value, words = WRONG[wrong]
    assert [] == [one for one in meaning.complaints(items) if words in one]
    change(found(items, name), path, value)
    assert 1 <= len([one for one in meaning.complaints(items) if words in one]), meaning.complaints(items)


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_what_is_not_restricted_is_seen(unsafe: str, items: list[Object]) -> None:
    """One freedom given to a good overlay's pod is complained about, and nothing else."""
    path, value, words = UNSAFE[unsafe]
    change(found(items, "StatefulSet/site"), path, value)
    [complaint] = breaches(items)
    assert words in complaint


def without_denial(items: list[Object]) -> None:
    """Only what other policies close is closed."""
    items.remove(found(items, "NetworkPolicy/deny-all"))


def without_ports(items: list[Object]) -> None:
    """A rule with no ports covers all of them."""
    del found(items, "NetworkPolicy/sites-to-coordinator")["spec"]["ingress"][0]["ports"]


def from_everywhere(items: list[Object]) -> None:
    """An empty selector of namespaces takes all of them."""
    peers = found(items, "NetworkPolicy/sites-to-coordinator")["spec"]["ingress"][0]["from"]
    peers[0]["namespaceSelector"] = {}


def one_side(items: list[Object]) -> None:
    """The caller's side stays shut."""
    items.remove(found(items, "NetworkPolicy/site-to-coordinator"))


def other_labels(items: list[Object]) -> None:
    """The opening is for pods that are called otherwise."""
    change(
        found(items, "NetworkPolicy/site-to-coordinator"),
        ("spec", "podSelector", "matchLabels", "app.kubernetes.io/component"),
        "place",
    )


@pytest.mark.parametrize(
    ("change_it", "caller", "called", "port", "before"),
    [
        (without_denial, "coordinator", "world", 443, False),
        (without_denial, "neighbour", "world", 443, False),
        (without_ports, "site", "coordinator", 7480, False),
        (from_everywhere, "stranger", "coordinator", 7443, False),
        (one_side, "site", "coordinator", 7443, True),
        (other_labels, "site", "coordinator", 7444, True),
    ],
)
def test_a_policy_that_lets_through_something_else(
    change_it: Callable[[list[Object]], None],
    caller: str,
    called: str,
    port: int,
    before: bool,
    items: list[Object],
) -> None:
    """Opened too far or not far enough, the same question has the other answer."""
    peers = {**policies.CLUSTER, **policies.pods(items)}

    def asked() -> bool:
        # A site's own way out hides a coordinator's door that is open too wide: it is given all ways out here.
        open_out = {"egress": [{}], "policyTypes": ["Egress"], "podSelector": {}}
        way_out = {"kind": "NetworkPolicy", "metadata": {"namespace": "pfl-experiment"}, "spec": open_out}
        looked_at = [*items, way_out] if change_it is without_ports else items
        return policies.may_call(looked_at, peers[caller], peers[called], port=port)

    assert before == asked()
    change_it(items)
    assert before != asked()


def found(items: list[Object], name: str) -> Object:
    """An object by kind and name."""
    return next(item for item in items if name_of(item) == name)


def change(item: Any, path: Path, value: Any) -> None:
    """Put another value in a place, or take it away."""
    *way, last = path
    for step in way:
        item = item[step]
    if value is REMOVE:
        del item[last]
    else:
        item[last] = value
