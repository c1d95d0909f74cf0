"""How sites and Prometheus come to the pods: by which protocol, from whose address, under which name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.deploy.kubernetes_manifests.rendering import FOLDER, Object, containers, name_of, of_kind, pod_of

PROMETHEUS = FOLDER.parent / "prometheus" / "prometheus.yaml"
OUTWARD = ("LoadBalancer", "NodePort")
TRIAL = "all-in-one"
"""Nobody watches it while it starts or drains."""


def spoken(items: list[Object]) -> Iterator[str]:
    """Everything here is TCP, at both ends of a Service."""
    for item in of_kind(items, "StatefulSet"):
        yield from _other_protocols(
            name_of(item), [p for c in containers(pod_of(item)) for p in c.get("ports", [])]
        )
    for item in of_kind(items, "Service"):
        yield from _other_protocols(name_of(item), item["spec"]["ports"])


def told_apart(items: list[Object]) -> Iterator[str]:
    """What comes from outside keeps its address: the policy in front of the coordinator knows networks by it."""
    for item in of_kind(items, "Service"):
        outward = item["spec"].get("type") in OUTWARD
        if outward and item["spec"].get("externalTrafficPolicy") != "Local":
            yield f"{name_of(item)} hides where its callers come from: externalTrafficPolicy is not Local"


def published(items: list[Object]) -> Iterator[str]:
    """A pod that starts or drains has its name and is scraped; where sites call, it is left out."""
    governing = {item["spec"]["serviceName"] for item in of_kind(items, "StatefulSet")} - {TRIAL}
    for item in of_kind(items, "Service"):
        wanted = item["metadata"]["name"] in governing
        if (
            item["metadata"]["name"] != TRIAL
            and item["spec"].get("publishNotReadyAddresses", False) != wanted
        ):
            yield f"{name_of(item)} leads to pods that are not ready: {not wanted}, and should be {wanted}"


def asked(items: list[Object]) -> Iterator[str]:
    """Monitors ask where the programs have their numbers, under the job that rules and dashboards know."""
    jobs = set(re.findall(r"job_name: (\S+)", PROMETHEUS.read_text()))
    for item in of_kind(items, "ServiceMonitor", "PodMonitor"):
        job = f"pfl-{item['metadata']['labels']['app.kubernetes.io/component']}"
        for end in [*item["spec"].get("endpoints", []), *item["spec"].get("podMetricsEndpoints", [])]:
            if end.get("path") != "/metrics":
                yield f"{name_of(item)} asks {end.get('path')}, not /metrics"
            called = {one["targetLabel"]: one["replacement"] for one in end.get("relabelings", [])}
            if called.get("job") != job or job not in jobs:
                yield f"{name_of(item)} calls its job {called.get('job')}, not {job} of {sorted(jobs)}"


CHECKS = (spoken, told_apart, published, asked)


def _other_protocols(name: str, ports: list[Object]) -> Iterator[str]:
    for port in ports:
        if port.get("protocol", "TCP") != "TCP":
            yield f"{name}: port {port['name']} speaks {port['protocol']}"
