"""What surrounds the API server of a real cluster, done by hand: here are no controllers, and it is an old one."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path

from tests.deploy.kubernetes_manifests.rendering import Object, of_kind
from tests.deploy.kubernetes_server.cluster import Cluster, Said

HERE = Path(__file__).parent
KINDS = ("servicemonitors", "podmonitors", "prometheusrules")
NAMES = "jsonpath={.items[*].metadata.name}"
OURS = "app.kubernetes.io/name=pfl"


def furnish(cluster: Cluster) -> Iterator[tuple[str, Said]]:
    """What a cluster has before our objects come: the operator's kinds, and a policy for pods."""
    for file in ("monitors.yaml", "restricted.yaml"):
        yield file, cluster.ask("apply", "-f", str(HERE / file))
    # New kinds are served a moment after they are taken.
    kinds = [f"crd/{name}.monitoring.coreos.com" for name in KINDS]
    cluster.ask("wait", "--for=condition=Established", "--timeout=60s", *kinds)


def for_this_server(items: list[Object]) -> list[Object]:
    """1.20 knows the budget by its older name only; its fields are the same."""
    for item in of_kind(items, "PodDisruptionBudget"):
        item["apiVersion"] = "policy/v1beta1"
    return items


def make_account(cluster: Cluster, space: str) -> None:
    """The account of pods that name none, which each namespace has."""
    cluster.ask("-n", space, "create", "serviceaccount", "default")


def pod_made_by(item: Object, number: int = 0) -> Object:
    """What the controller would make of a template; claims stand for the volumes it would make too."""
    template = copy.deepcopy(item["spec"]["template"])
    name, space = f"{item['metadata']['name']}-{number}", item["metadata"]["namespace"]
    for claim in item["spec"]["volumeClaimTemplates"]:
        made = {"claimName": f"{claim['metadata']['name']}-{name}"}
        template["spec"]["volumes"].append({"name": claim["metadata"]["name"], "persistentVolumeClaim": made})
    metadata = {**template["metadata"], "name": name, "namespace": space}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def replace_pods(cluster: Cluster, space: str) -> None:
    """As many pods of each StatefulSet as it wants, under the names they would have. None of them runs."""
    sets = json.loads(cluster.ask("-n", space, "get", "statefulsets", "-o", "json").out)["items"]
    made = [pod_made_by(one, number) for one in sets for number in range(one["spec"]["replicas"])]
    wanted = {pod["metadata"]["name"]: pod for pod in made}
    there = set(cluster.ask("-n", space, "get", "pods", "-l", OURS, "-o", NAMES).out.split())
    if new := [pod for name, pod in wanted.items() if name not in there]:
        cluster.ask("create", objects=new)
    if gone := sorted(there - set(wanted)):
        cluster.ask("-n", space, "delete", "pod", *gone)


def leave_orphans(cluster: Cluster, space: str, name: str) -> None:
    """End a StatefulSet that was deleted alone: the collector of garbage lets go of its pods first."""
    cluster.ask(
        "-n", space, "patch", "statefulset", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
