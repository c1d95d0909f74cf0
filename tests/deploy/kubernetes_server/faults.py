"""Wrong manifests, each wrong in one place: what a real API server must refuse, and a word of why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

POD = ("spec", "template", "spec")
SITE = (*POD, "containers", 0)
REMOVE = object()


@dataclass(frozen=True)
class Fault:
    """One value in one object of the overlay `experiment`, and what the refusal says."""

    name: str
    place: tuple[str | int, ...]
    value: Any
    words: str


FAULTS: dict[str, Fault] = {
    "a field nobody knows": Fault("StatefulSet/site", ("spec", "replica"), 3, "unknown field"),
    "a field at the wrong depth": Fault("StatefulSet/site", (*SITE, "fsGroup"), 10001, "unknown field"),
    "a number as words": Fault("StatefulSet/site", ("spec", "replicas"), "four", "replicas"),
    "other pods than its own": Fault(
        "StatefulSet/site", ("spec", "selector", "matchLabels", "app.kubernetes.io/name"), "x", "does not match"
    ),
    "a mount without a volume": Fault(
        "StatefulSet/site", (*SITE, "volumeMounts", 0, "name"), "vault", "Not found"
    ),
    "two mounts in one place": Fault(
        "StatefulSet/site", (*SITE, "volumeMounts", 0, "mountPath"), "/tmp", "must be unique"
    ),
    "a port above all ports": Fault(
        "StatefulSet/site", (*SITE, "ports", 0, "containerPort"), 74810, "between 1 and 65535"
    ),
    "a port with too long a name": Fault(
        "StatefulSet/coordinator", (*SITE, "ports", 0, "name"), "control-of-the-sites", "no more than 15"
    ),
    "a protocol in small letters": Fault(
        "Service/coordinator", ("spec", "ports", 0, "protocol"), "tcp", "Unsupported value"
    ),
    "two ports of one name": Fault(
        "Service/coordinator", ("spec", "ports", 1, "name"), "control", "Duplicate value"
    ),
    "a headless Service in other words": Fault("Service/site", ("spec", "clusterIP"), "none", "clusterIP"),
    "an amount of no unit": Fault(
        "StatefulSet/site", (*SITE, "resources", "limits", "memory"), "4Gigs", "quantities"
    ),
    "more asked than allowed": Fault(
        "StatefulSet/site", (*SITE, "resources", "requests", "memory"), "8Gi", "less than or equal to"
    ),
    "a probe without a port": Fault(
        "StatefulSet/site", (*SITE, "livenessProbe", "httpGet", "port"), REMOVE, "port"
    ),
    "a probe that never asks": Fault(
        "StatefulSet/site", (*SITE, "startupProbe", "periodSeconds"), -1, "greater than or equal to"
    ),
    "a grace in words": Fault(
        "StatefulSet/site", (*POD, "terminationGracePeriodSeconds"), "30s", "terminationGracePeriodSeconds"
    ),
    "a hook of two kinds": Fault(
        "StatefulSet/coordinator", (*SITE, "lifecycle", "preStop", "httpGet"), {"path": "/", "port": 1}, "more than 1"
    ),
    "root that is not root": Fault(
        "StatefulSet/site", (*POD, "securityContext", "runAsUser"), -1, "between 0 and"
    ),
    "a claim nobody can mount": Fault(
        "StatefulSet/site", ("spec", "volumeClaimTemplates", 0, "spec", "accessModes"), ["WriteOnce"], "accessModes"
    ),
    "a part of a variable's path": Fault(
        "StatefulSet/site", (*SITE, "volumeMounts", 0, "subPathExpr"), "../$(POD_NAME)", "must not contain '..'"
    ),
    "a budget of both kinds": Fault(
        "PodDisruptionBudget/site", ("spec", "minAvailable"), 1, "cannot be both set"
    ),
    "an address block of no size": Fault(
        "NetworkPolicy/site-to-dns", ("spec", "egress", 0, "to"), [{"ipBlock": {"cidr": "10.0.0.1"}}], "CIDR"
    ),
    "a policy in no direction": Fault(
        "NetworkPolicy/deny-all", ("spec", "policyTypes"), ["In"], "Unsupported value"
    ),
    "a label that is none": Fault(
        "Namespace/pfl-experiment", ("metadata", "labels", "owner"), "the lab, upstairs", "valid label"
    ),
    "a name that is none": Fault("ServiceAccount/site", ("metadata", "name"), "site_1", "RFC 1123"),
    "a monitor by number": Fault(
        "ServiceMonitor/coordinator", ("spec", "endpoints", 0, "port"), 7480, "string"
    ),
    "a monitor every so often": Fault(
        "PodMonitor/site", ("spec", "podMetricsEndpoints", 0, "interval"), "often", "interval"
    ),
}  # fmt: skip

FREEDOMS: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "root": (("securityContext", "runAsNonRoot"), False),
    "every call of the system": (("securityContext", "seccompProfile", "type"), "Unconfined"),
    "the node's network": (("hostNetwork",), True),
    "a folder of the node": (("volumes", 0), {"name": "data", "hostPath": {"path": "/srv"}}),
    "privileges": (("containers", 0, "securityContext", "privileged"), True),
    "a capability": (("containers", 0, "securityContext", "capabilities", "add"), ["NET_ADMIN"]),
    "a writable root": (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False),
    "an account that is not there": (("serviceAccountName",), "nobody"),
}
"""What a site's pod may not have, by place in the pod's specification."""

CHANGES = {"order of pods": ("podManagementPolicy", "OrderedReady"), "Service": ("serviceName", "other")}
"""What a StatefulSet that is there may not be given."""


def plant(item: Any, place: tuple[str | int, ...], value: Any) -> None:
    """Put the fault in its place."""
    *way, last = place
    for step in way:
        item = item[step]
    if value is REMOVE:
        del item[last]
    else:
        item[last] = value
