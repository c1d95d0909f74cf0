"""Who may call whom: NetworkPolicies worked out over the pods of an overlay and over strangers.

A policy that selects a pod closes it in its direction, and all that select it together open it. Two pods can talk when
the caller's side and the called side both allow it. A block of addresses takes pods too, as most networks have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from tests.deploy.kubernetes_manifests.rendering import Object, of_kind


@dataclass(frozen=True)
class Peer:
    """A pod, or with no namespace something outside of the cluster."""

    name: str
    address: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)


OURS = {"app.kubernetes.io/name": "pfl", "app.kubernetes.io/component": "site"}
CLUSTER = {
    "prometheus": Peer("prometheus", "10.1.0.1", "monitoring", {"app.kubernetes.io/name": "prometheus"}),
    "dns": Peer("dns", "10.1.0.2", "kube-system", {"k8s-app": "kube-dns"}),
    "stranger": Peer("stranger", "10.1.0.3", "shop", OURS),
    "world": Peer("world", "203.0.113.9"),
}
"""Who else there is: a pod of another namespace may well carry the labels of ours."""


def pods(items: list[Object]) -> dict[str, Peer]:
    """A pod of each StatefulSet, a second one where it has several, and in the same namespace one that is not ours."""
    found = {}
    for item in of_kind(items, "StatefulSet"):
        space, labels = item["metadata"]["namespace"], item["spec"]["template"]["metadata"]["labels"]
        for number in range(min(2, item["spec"]["replicas"])):
            name = item["metadata"]["name"] + (f"-{number}" if number else "")
            found[name] = Peer(name, f"10.0.0.{len(found) + 1}", space, labels)
    space = of_kind(items, "Namespace")[0]["metadata"]["name"]
    return {**found, "neighbour": Peer("neighbour", "10.0.0.99", space, {"app": "other"})}


def may_call(items: list[Object], caller: Peer, called: Peer, *, port: int, protocol: str = "TCP") -> bool:
    """Whether a connection from one to the other is let through."""
    policies = of_kind(items, "NetworkPolicy")
    return _lets(policies, caller, called, ("Egress", "egress", "to"), (port, protocol)) and _lets(
        policies, called, caller, ("Ingress", "ingress", "from"), (port, protocol)
    )


def _lets(
    policies: list[Object], pod: Peer, other: Peer, way: tuple[str, str, str], at: tuple[int, str]
) -> bool:
    kind, rules, peers = way
    closing = [policy["spec"] for policy in policies if _closes(policy, pod, kind)]
    if not closing:
        return True
    return any(
        _covers(rule.get("ports"), *at) and _names(rule.get(peers), other, pod.namespace)
        for spec in closing
        for rule in spec.get(rules, [])
    )


def _closes(policy: Object, pod: Peer, kind: str) -> bool:
    same = policy["metadata"]["namespace"] == pod.namespace
    return same and kind in policy["spec"]["policyTypes"] and _fits(policy["spec"]["podSelector"], pod.labels)


def _covers(ports: list[Object] | None, port: int, protocol: str) -> bool:
    # No list means every port: that is what Kubernetes makes of it.
    return not ports or any(
        entry.get("protocol", "TCP") == protocol and entry.get("port", port) == port for entry in ports
    )


def _names(entries: list[Object] | None, other: Peer, home: str) -> bool:
    return not entries or any(_is_meant(entry, other, home) for entry in entries)


def _is_meant(entry: Object, other: Peer, home: str) -> bool:
    if "ipBlock" in entry:
        inside = ip_address(other.address) in ip_network(entry["ipBlock"]["cidr"])
        return inside and not any(
            ip_address(other.address) in ip_network(hole) for hole in entry["ipBlock"].get("except", [])
        )
    if not other.namespace:
        return False
    if "namespaceSelector" in entry:
        here = _fits(entry["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
    else:
        here = other.namespace == home
    return here and _fits(entry.get("podSelector", {}), other.labels)


def _fits(selector: Object, labels: dict[str, str]) -> bool:
    unknown = set(selector) - {"matchLabels"}
    assert not unknown, f"this evaluator does not know {sorted(unknown)}"
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
