"""Wrong manifests, each wrong in one place: what the checks beside this file must see, and how they complain."""

from __future__ import annotations

from typing import Any

Place = tuple[str | int, ...]
"""The way to a value; a word leads into a list too, to the entry of that name or the word that begins so."""
POD: Place = ("spec", "template", "spec")
SITE: Place = (*POD, "containers", 0)
REMOVE = object()

WRONG: dict[str, tuple[str, Place, Any, str]] = {
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
        "StatefulSet/coordinator", (*POD, "volumes", "settings", "configMap", "name"), "settings",
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
        "Service/site", ("metadata", "namespace"), "default", "Service/site is not in"
    ),
    "a coordinator's state that goes with the pod": (
        "StatefulSet/coordinator", (*SITE, "args", "--state"), "--state=/tmp/coordinator", "lies in emptyDir"
    ),
    "a site's state that goes with the pod": (
        "StatefulSet/site", (*SITE, "args", "--state"), "--state=/tmp/sites", "lies in emptyDir"
    ),
    "a trial's state that goes with the pod": (
        "StatefulSet/all-in-one", (*POD, "containers", "site-b", "args", "--state"), "--state=/tmp/sites",
        "site-b: --state=/tmp/sites lies in emptyDir",
    ),
    "a state on the image's own file system": (
        "StatefulSet/site", (*SITE, "volumeMounts", "state", "mountPath"), "/var/lib/other",
        "nothing is mounted at /var/lib/pfl/sites",
    ),
    "a state where the program puts it": (
        "StatefulSet/coordinator", (*SITE, "args", "--state"), "--log-format=json", "coordinator: no --state"
    ),
    "a state that cannot be written": (
        "StatefulSet/site", (*SITE, "volumeMounts", "state", "readOnly"), True, "--state is read-only"
    ),
    "settings that lie elsewhere": (
        "StatefulSet/coordinator", (*SITE, "volumeMounts", "settings", "mountPath"), "/etc/other",
        "nothing is mounted at /etc/pfl/coordinator.toml",
    ),
    "a trial's settings that lie elsewhere": (
        "StatefulSet/all-in-one", (*SITE, "volumeMounts", "trial", "mountPath"), "/other",
        "nothing is mounted at /trial/coordinator.toml",
    ),
    "settings of another name": (
        "StatefulSet/coordinator", (*SITE, "args", "--config"), "--config=/etc/pfl/server.toml",
        "wants server.toml, which nobody puts there",
    ),
    "data where nothing is": ("StatefulSet/site", (*SITE, "args", "--data"), "--data=/date", "mounted at /date"),
    "data out of the Secret": (
        "StatefulSet/site", (*SITE, "args", "--data"), "--data=/etc/pfl/join", "lies in secret"
    ),
    "data that can be changed": (
        "StatefulSet/all-in-one", (*POD, "containers", "site-a", "volumeMounts", "data", "readOnly"), False,
        "site-a: --data is open to writing",
    ),
    "data that nobody brings": (
        "StatefulSet/all-in-one", (*POD, "containers", "site-a", "args", "--data"), "--data=/run/pfl/site-a",
        "site-a: nobody fills /run/pfl",
    ),
    "an authority put back beside the state": (
        "StatefulSet/coordinator", (*SITE, "args", "--state"), "--state=/var/lib/pfl/run", "not put into its --state"
    ),
    "an invitation of another name": (
        "StatefulSet/site", (*POD, "volumes", "join", "secret", "items"), [{"key": "other.join", "path": "other.join"}],
        "which nobody puts there",
    ),
    "an invitation without its name": (
        "StatefulSet/site", (*SITE, "volumeMounts", "join", "subPathExpr"), REMOVE, "which nobody puts there"
    ),
    "a site without an invitation": ("StatefulSet/site", ("spec", "replicas"), 5, "wants site-4.join"),
    "a coordinator's home that is read-only": (
        "StatefulSet/coordinator", (*SITE, "env", "HOME", "value"), "/root", "HOME is /root, where nothing"
    ),
    "a site's home that is read-only": (
        "StatefulSet/site", (*SITE, "env", "HOME", "value"), "/root", "HOME is /root, where nothing"
    ),
    "a home among the data": (
        "StatefulSet/site", (*SITE, "env", "HOME", "value"), "/data", "HOME is /data, where nothing"
    ),
    "a state home that is read-only": (
        "StatefulSet/coordinator", (*SITE, "env", "XDG_STATE_HOME", "value"), "/run/state",
        "XDG_STATE_HOME is /run/state, where nothing",
    ),
    "a trial's state home that is read-only": (
        "StatefulSet/all-in-one", (*SITE, "env", "XDG_STATE_HOME", "value"), "/root",
        "XDG_STATE_HOME is /root, where nothing",
    ),
    "a site that looks past its coordinator": (
        "StatefulSet/all-in-one", (*POD, "containers", "site-c", "env", "XDG_STATE_HOME", "value"), "/tmp",
        "site-c: no --join, and no coordinator leaves word",
    ),
    "a Service of datagrams": (
        "Service/coordinator", ("spec", "ports", "enrolment", "protocol"), "UDP", "port enrolment speaks UDP"
    ),
    "metrics in datagrams": (
        "Service/coordinator-metrics", ("spec", "ports", 0, "protocol"), "UDP", "port metrics speaks UDP"
    ),
    "a port of datagrams": (
        "StatefulSet/site", (*SITE, "ports", 0, "protocol"), "UDP", "port metrics speaks UDP"
    ),
    "a balancer that hides its callers": (
        "Service/coordinator", ("spec", "externalTrafficPolicy"), "Cluster", "hides where its callers come from"
    ),
    "a balancer that says nothing of it": (
        "Service/coordinator", ("spec", "externalTrafficPolicy"), REMOVE, "hides where its callers come from"
    ),
    "a door to a coordinator that starts": (
        "Service/coordinator", ("spec", "publishNotReadyAddresses"), True, "not ready: True, and should be False"
    ),
    "a coordinator that drains unseen": (
        "Service/coordinator-metrics", ("spec", "publishNotReadyAddresses"), REMOVE, "not ready: False, and should be"
    ),
    "a site without a name until it is ready": (
        "Service/site", ("spec", "publishNotReadyAddresses"), REMOVE, "not ready: False, and should be"
    ),
    "a drain that waits for ever": (
        "PodDisruptionBudget/coordinator", ("spec", "maxUnavailable"), 0, "lets 0 pods be moved"
    ),
    "a drain that waits for the sites": (
        "PodDisruptionBudget/site", ("spec", "maxUnavailable"), 0, "lets 0 pods be moved"
    ),
    "a monitor of another page": (
        "ServiceMonitor/coordinator", ("spec", "endpoints", 0, "path"), "/metricz", "asks /metricz"
    ),
    "a site's monitor of another page": (
        "PodMonitor/site", ("spec", "podMetricsEndpoints", 0, "path"), "/metricz", "asks /metricz"
    ),
    "a job of another name": (
        "ServiceMonitor/coordinator", ("spec", "endpoints", 0, "relabelings", 0, "replacement"), "coordinator",
        "calls its job coordinator, not pfl-coordinator",
    ),
    "a job under another label": (
        "ServiceMonitor/coordinator", ("spec", "endpoints", 0, "relabelings", 0, "targetLabel"), "jobs",
        "calls its job None",
    ),
    "a site's job without a name": (
        "PodMonitor/site", ("spec", "podMetricsEndpoints", 0, "relabelings"), REMOVE, "calls its job None"
    ),
    "a start that may not take long": (
        "StatefulSet/coordinator", (*SITE, "startupProbe", "failureThreshold"), 1, "startupProbe asks 1 times in 2 s"
    ),
    "a start that has half of its time": (
        "StatefulSet/site", (*SITE, "startupProbe", "periodSeconds"), 1, "startupProbe asks 150 times in 150 s"
    ),
    "a trial's start that may not take long": (
        "StatefulSet/all-in-one", (*POD, "containers", "site-c", "startupProbe", "failureThreshold"), 1,
        "site-c: startupProbe asks 1 times",
    ),
    "a coordinator that is unready at once": (
        "StatefulSet/coordinator", (*SITE, "readinessProbe", "failureThreshold"), 1, "readinessProbe asks 1 times"
    ),
    "a site that is unready at once": (
        "StatefulSet/site", (*SITE, "readinessProbe", "failureThreshold"), 1, "readinessProbe asks 1 times"
    ),
    "a coordinator ended for one silence": (
        "StatefulSet/coordinator", (*SITE, "livenessProbe", "failureThreshold"), 1, "livenessProbe asks 1 times"
    ),
    "a site ended for one silence": (
        "StatefulSet/site", (*SITE, "livenessProbe", "failureThreshold"), REMOVE, "livenessProbe asks 3 times in 60 s"
    ),
    "no card to train on": (
        "StatefulSet/site", (*SITE, "resources", "limits", "nvidia.com/gpu"), REMOVE, "nvidia.com/gpu is 0"
    ),
    "a card that lies idle": (
        "StatefulSet/site", (*SITE, "args", "--device"), "--device=cpu", "--device=cuda is False"
    ),
    "a card on a node that is shut": (
        "StatefulSet/site", (*POD, "tolerations"), REMOVE, "--device=cuda is True"
    ),
}  # fmt: skip

ONLY_IN = {
    "a namespace that takes any pod": ("experiment",),
    "an authority put back beside the state": ("coordinator",),
    "an invitation without its name": ("experiment",),
    "a site without an invitation": ("experiment",),
    "a balancer that hides its callers": ("coordinator",),
    "a balancer that says nothing of it": ("coordinator",),
    "no card to train on": ("gpu",),
    "a card that lies idle": ("gpu",),
    "a card on a node that is shut": ("gpu",),
    "data out of the Secret": ("gpu", "site"),
}
"""What is wrong in some overlays is none of others; what is not named here is wrong in each that has the object."""

MISTOLD: dict[str, tuple[str, str, str, str]] = {
    "an invitation by another name": (
        "site", "--from-file=site.join=", "--from-file=other.join=", "site.join wants site.join"
    ),
    "an invitation elsewhere": (
        "gpu", "-n pfl-site create secret", "-n pfl create secret", "nobody makes the Secret join"
    ),
    "an invitation too few": (
        "experiment", "for n in 0 1 2 3; do\n", "for n in 0 1 2; do\n", "wants site-3.join"
    ),
    "another claim": ("site", '{"name": "data"}', '{"name": "date"}', "nobody makes the PersistentVolumeClaim data"),
    "a federation by another name": (
        "coordinator", "generic federation --from-file=", "generic federation --from-file=copy=",
        "/federation/federation.tar wants federation.tar",
    ),
}  # fmt: skip
"""By overlay: what the operator's page might say instead, and what then does not fit."""

UNSAFE: dict[str, tuple[Place, Any, str]] = {
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
    "volumes of nobody": ((*POD, "securityContext", "fsGroup"), REMOVE, "has volumes of another group"),
    "volumes of others": ((*POD, "securityContext", "fsGroup"), 20000, "has volumes of another group"),
}  # fmt: skip


def change(item: Any, place: Place, value: Any) -> None:
    """Put another value in a place, or take it away."""
    *way, last = place
    for step in way:
        item = item[entry(item, step)]
    if value is REMOVE:
        del item[entry(item, last)]
    else:
        item[entry(item, last)] = value


def entry(item: Any, step: str | int) -> str | int:
    """Where a step of the way leads: into a list by the name of an entry, or by how a word begins."""
    if isinstance(item, dict) or isinstance(step, int):
        return step
    names = [one["name"] if isinstance(one, dict) else one.split("=")[0] for one in item]
    return names.index(step)
