"""The manifests: each overlay renders, fits schemas, fits itself, and opens what has to be open and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from pfl_client import cli as client_cli
from pfl_common.app.config import settle
from pfl_server import cli as server_cli
from pfl_server.process import DRAIN_SECONDS
from pfl_server.run import setting_checks
from pfl_server.settings import ServerSettings
from tests.deploy.kubernetes_manifests import meaning, page, policies
from tests.deploy.kubernetes_manifests.mounts import flags
from tests.deploy.kubernetes_manifests.rendering import (
    FOLDER,
    OVERLAYS,
    Object,
    containers,
    objects,
    of_kind,
    pod_of,
)
from tests.deploy.kubernetes_manifests.restricted import breaches
from tests.deploy.scenarios.test_pod_replaced import GRACE
from tests.deploy.support.processes import Machine
from tests.house.skeleton import read_settings

RELEASES = ("1.25", "1.37")
"""The oldest and the newest whose schemas are known."""
OTHERS = ("monitoring.coreos.com", "kustomize.config.k8s.io")
PROGRAMS = {"pfl-server": server_cli.app, "pfl-client": client_cli.app}
CONTROL, ENROLMENT, COORDINATOR_METRICS, SITE_METRICS, DNS = 7443, 7444, 7480, 7481, 53
EVERY_PORT = (CONTROL, ENROLMENT, COORDINATOR_METRICS, SITE_METRICS, DNS, 22, 443, 6443, 10250)
COORDINATORS = ("coordinator", "coordinator-keys")
COORDINATOR_PORTS = {("coordinator", CONTROL), ("coordinator", ENROLMENT)}
OPEN = {
    "all-in-one": {},
    "coordinator": {
        "world": COORDINATOR_PORTS,
        "stranger": COORDINATOR_PORTS,
        "dns": COORDINATOR_PORTS,
        "prometheus": COORDINATOR_PORTS | {("coordinator", COORDINATOR_METRICS)},
    },
    "site": {
        "site": {("dns", DNS), *((name, port) for name in policies.CLUSTER for port in (CONTROL, ENROLMENT))},
        "prometheus": {("site", SITE_METRICS)},
    },
    "experiment": {
        "site": COORDINATOR_PORTS | {("dns", DNS)},
        "site-1": COORDINATOR_PORTS | {("dns", DNS)},
        "prometheus": {
            ("coordinator", COORDINATOR_METRICS),
            ("site", SITE_METRICS),
            ("site-1", SITE_METRICS),
        },
    },
}
"""Who may call whom, all of it. The way between a site and a coordinator of other places is open to any address until
the operator names it: certificates decide there."""
OPEN["gpu"], OPEN["coordinator-keys"] = OPEN["site"], OPEN["coordinator"]


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Each of them."""
    return str(request.param)


@pytest.fixture
def items(overlay: str) -> list[Object]:
    """The overlay's objects."""
    return objects(overlay)


@pytest.mark.parametrize("release", RELEASES)
def test_the_schemas(items: list[Object], release: str) -> None:
    """Every object is one of this release of Kubernetes, with no field it does not know."""
    schemas = pytest.importorskip("kubernetes_validate", reason="left out: package kubernetes-validate")
    checked = [item for item in items if not item["apiVersion"].startswith(OTHERS)]
    for item in checked:
        schemas.validate(item, release, strict=True)
    assert len(checked) >= 4


def test_it_fits_itself(items: list[Object]) -> None:
    """Selectors, ports, probes, monitors, volumes, paths, names: what one says of another is so."""
    assert [] == meaning.complaints(items)


def test_the_restricted_level(items: list[Object]) -> None:
    """No root, no capability, no writable root, no token: what the cluster enforces on the namespace, and more."""
    assert [] == breaches(items)


def test_who_may_call_whom(overlay: str, items: list[Object]) -> None:
    """Every pair of peers on every port of interest: what is open is what is meant, and nothing else."""
    ours = policies.pods(items)
    peers = {**policies.CLUSTER, **ours}
    found: dict[str, set[tuple[str, int]]] = {}
    for caller in peers.values():
        for called in peers.values():
            if caller is called or not {caller.name, called.name} & set(ours):
                continue
            for port in EVERY_PORT:
                if policies.may_call(items, caller, called, port=port):
                    found.setdefault(caller.name, set()).add((called.name, port))
    assert OPEN[overlay] == found


def test_names_are_asked_over_udp_too(items: list[Object]) -> None:
    """A site may ask for names in both ways, and nobody else may; over UDP it can do nothing else."""
    ours, dns = policies.pods(items), policies.CLUSTER["dns"]
    for name, pod in ours.items():
        asked = {port for port in EVERY_PORT if policies.may_call(items, pod, dns, port=port, protocol="UDP")}
        assert ({DNS} if name.startswith("site") else set()) == asked


def test_time_to_end(items: list[Object]) -> None:
    """The grace period holds the preStop hook and what SIGTERM takes, as `test_pod_replaced.py` sees it."""
    for item in of_kind(items, "StatefulSet"):
        pod, name = pod_of(item), item["metadata"]["name"]
        grace = pod["terminationGracePeriodSeconds"]
        assert GRACE.get(name, GRACE["coordinator"]) == grace
        hooks = [one.get("lifecycle", {}).get("preStop", {}).get("exec") for one in pod["containers"]]
        waits = sum(float(hook["command"][1]) for hook in hooks if hook)
        assert waits + 3 * DRAIN_SECONDS <= grace
        assert (name == "coordinator") == bool(waits)


def test_the_programs_know_these_words(items: list[Object]) -> None:
    """Every flag in a container's command is one of its program's, and the program is its image's."""
    images = {"pfl-server": "pfl-coordinator", "pfl-client": "pfl-site"}
    seen = 0
    for item in of_kind(items, "StatefulSet"):
        for container in pod_of(item)["containers"]:
            [program] = container["command"]
            command = typer.main.get_command(PROGRAMS[program])
            known = {word for option in command.params for word in option.opts}
            assert set() == {word.split("=")[0] for word in container["args"]} - known
            assert images[program] == container["image"].split(":")[0]
            seen += 1
    assert seen >= 1


def test_images_have_a_version(overlay: str, items: list[Object]) -> None:
    """Both images carry this project's version, never `latest`; the one for graphics cards says so."""
    version = str(read_settings()["project"]["version"])
    wanted = f"{version}-cuda" if overlay == "gpu" else version
    found = {one["image"] for item in of_kind(items, "StatefulSet") for one in containers(pod_of(item))}
    assert {wanted} == {image.split(":")[1] for image in found}
    assert {image.split(":")[0] for image in found} <= {"pfl-coordinator", "pfl-site"}


@pytest.mark.parametrize("overlay", ["all-in-one", "coordinator", "experiment"], indirect=True)
def test_the_coordinators_settings(items: list[Object]) -> None:
    """What a coordinator is told it understands, and it never begins another run by being started again."""
    text = coordinator_toml(items)
    settings = settle(ServerSettings, tomllib.loads(text), what="pfl-server")
    setting_checks.check_words(settings)
    assert settings.advertise
    assert not settings.new_run


@pytest.mark.parametrize("overlay", ["experiment"], indirect=True)
def test_a_site_for_each_ordinal(items: list[Object]) -> None:
    """As many pods as the coordinator waits for; each takes invitation and data by its own name."""
    text = coordinator_toml(items)
    [site] = [item for item in of_kind(items, "StatefulSet") if item["metadata"]["name"] == "site"]
    [container] = pod_of(site)["containers"]
    assert tomllib.loads(text)["sites"] == site["spec"]["replicas"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert ("$(POD_NAME)", True) == (mounts["data"]["subPathExpr"], mounts["data"]["readOnly"])
    # Nobody else's invitation is in the pod.
    assert ("$(POD_NAME).join", True) == (mounts["join"]["subPathExpr"], mounts["join"]["readOnly"])
    assert f"--join={mounts['join']['mountPath']}" in container["args"]
    assert ["metadata.name"] == [
        one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"] if one["name"] == "POD_NAME"
    ]


@pytest.mark.parametrize("overlay", ["coordinator"], indirect=True)
def test_the_authority_is_brought_once(items: list[Object], tmp_path: Path) -> None:
    """An empty volume gets the federation of the Secret, private as it was; one that has a federation keeps its own."""
    [workload] = of_kind(items, "StatefulSet")
    [bringing] = pod_of(workload)["initContainers"]
    volume, secret, home = tmp_path / "volume", tmp_path / "secret", tmp_path / "home"
    for folder in (volume, secret, home / "federation", home / "invitations"):
        folder.mkdir(parents=True, mode=0o700)
    script = bringing["args"][0].replace("/var/lib/pfl", str(volume)).replace(" /federation/", f" {secret}/")
    key = home / "federation" / "authority.pem"
    for content, expected in (("", None), ("first", "first"), ("second", "first")):
        if content:
            key.write_text(content)
            key.chmod(0o600)
            packed = ["tar", "-C", home, "-cf", secret / "federation.tar", "federation", "invitations"]
            subprocess.run(packed, check=True, timeout=30)
        subprocess.run([*bringing["command"], script], check=True, timeout=30)
        brought = volume / "coordinator" / "federation" / "authority.pem"
        assert expected == (brought.read_text() if brought.exists() else None)
    assert [0o600, 0o700] == [path.stat().st_mode & 0o777 for path in (brought, brought.parent)]
    assert (volume / "coordinator" / "invitations").is_dir()


@pytest.mark.parametrize("overlay", ["all-in-one"], indirect=True)
def test_to_try_needs_nothing(items: list[Object], tmp_path: Path) -> None:
    """No Secret, no operator's kinds; and its containers' words, as processes of one user, do train together."""
    assert set() == {item["kind"] for item in items} - {
        "ConfigMap", "Namespace", "NetworkPolicy", "Service", "StatefulSet"
    }  # fmt: skip
    [trial] = [item["data"] for item in of_kind(items, "ConfigMap")]
    for name, text in trial.items():
        (tmp_path / name).write_text(text)
    [workload] = of_kind(items, "StatefulSet")
    [made] = pod_of(workload)["initContainers"]
    subprocess.run(
        [sys.executable, *_here(made["command"][1:], tmp_path)], check=True, timeout=60, cwd=tmp_path
    )
    machine = Machine(tmp_path / "machine")
    try:
        coordinator, *sites = pod_of(workload)["containers"]
        server = machine.server(*_here(coordinator["args"], tmp_path), "--rounds", "2")
        clients = {
            one["name"]: machine.start("pfl-client", *_here(one["args"], tmp_path), log=one["name"])
            for one in sites
        }
        assert 3 == len(clients)
        # A program that ends would be started again for ever: it stays, and waits for the next run.
        for name, client in clients.items():
            machine.wait_for(lambda name=name: "the run is over" in machine.said(name), client, name)
        assert [0, 0, 0] == [machine.stop(client) for client in clients.values()]
        assert 0 == machine.stop(server)
    finally:
        machine.end_all()


@pytest.mark.parametrize("release", RELEASES)
def test_the_loader(release: str) -> None:
    """The pod that carries files is a pod, and one that the namespaces of the overlays take."""
    yaml = pytest.importorskip("yaml", reason="left out: no module yaml (package PyYAML)")
    schemas = pytest.importorskip("kubernetes_validate", reason="left out: package kubernetes-validate")
    loader = yaml.safe_load((FOLDER / "loader.yaml").read_text())
    schemas.validate(loader, release, strict=True)
    template = {"metadata": loader["metadata"], "spec": loader["spec"]}
    assert [] == breaches(
        [{"kind": "StatefulSet", "metadata": loader["metadata"], "spec": {"template": template}}]
    )


def test_what_a_site_trains_on(overlay: str, items: list[Object]) -> None:
    """On a card in the overlay for cards, on the processor in all others, and never on what happens to be there."""
    every = [one for item in of_kind(items, "StatefulSet") for one in pod_of(item)["containers"]]
    devices = {flags(one).get("--device") for one in every if one["command"] == ["pfl-client"]}
    assert devices == (set() if overlay in COORDINATORS else {"cuda" if overlay == "gpu" else "cpu"})


def test_who_is_reached_from_outside(overlay: str, items: list[Object]) -> None:
    """The coordinator of sites anywhere, on its two ports; nobody else, and never metrics."""
    outward = [
        item for item in of_kind(items, "Service") if item["spec"].get("type", "ClusterIP") != "ClusterIP"
    ]
    found = {(item["metadata"]["name"], port["port"]) for item in outward for port in item["spec"]["ports"]}
    assert found == (COORDINATOR_PORTS if overlay in COORDINATORS else set())


@pytest.mark.parametrize("overlay", ["coordinator", "experiment", "site"], indirect=True)
def test_the_rules_are_prometheus_own(items: list[Object], tmp_path: Path) -> None:
    """The operator's objects say what deploy/prometheus/rules says, as `deploy/kubernetes/rules` makes them now."""
    yaml = pytest.importorskip("yaml", reason="left out: no module yaml (package PyYAML)")
    sources = FOLDER.parent / "prometheus" / "rules"
    files = sorted(sources.glob("pfl.*.yaml"))
    wanted = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    found = sorted(of_kind(items, "PrometheusRule"), key=lambda item: item["metadata"]["name"])
    assert words_of(wanted) == words_of([group for item in found for group in item["spec"]["groups"]])
    assert len(wanted) >= 2

    subprocess.run([FOLDER / "rules", tmp_path], check=True, timeout=30)
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept = (FOLDER / "components" / "rules").glob("pfl-*.yaml")
    assert {file.name: file.read_text() for file in kept} == made, "run deploy/kubernetes/rules"


@pytest.mark.parametrize("overlay", ["coordinator", "experiment", "site"], indirect=True)
def test_every_dashboard_comes_along(items: list[Object]) -> None:
    """Each file of deploy/grafana is a ConfigMap, as it is, where Grafana finds it."""
    files = {
        file.name: file.read_text() for file in (FOLDER.parent / "grafana" / "dashboards").glob("*.json")
    }
    labelled = [
        item
        for item in of_kind(items, "ConfigMap")
        if "grafana_dashboard" in item["metadata"].get("labels", {})
    ]
    assert files == {name: text for item in labelled for name, text in item["data"].items()}
    assert len(files) == len(labelled) >= 1
    # `kubectl apply` leaves a copy on the object, in a note of at most 256 KiB.
    assert max(len(json.dumps(text)) for text in files.values()) < 250_000


def words_of(item: Any) -> Any:
    """The same with no more than a space between words: kustomize adds an empty line to some folded texts."""
    if isinstance(item, str):
        return " ".join(item.split())
    if isinstance(item, list):
        return [words_of(part) for part in item]
    return {name: words_of(part) for name, part in item.items()} if isinstance(item, dict) else item


def test_the_page_names_what_is_there() -> None:
    """Each path of the operator's page is in the repository."""
    page = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"deploy/kubernetes/[\w./-]*\w", page))
    assert {f"deploy/kubernetes/overlays/{name}" for name in OVERLAYS} <= named
    assert [] == sorted(path for path in named if not (FOLDER.parents[1] / path).exists())


def test_the_pages_commands_are_tried() -> None:
    """Each call of kubectl on the operator's page is one that `tests/kubernetes` runs, or names as not run."""
    text = page.PAGE.read_text()
    assert [] == page.strangers(text)
    assert {*page.SERVER, "exec", "logs", "port-forward", "rollout", "wait"} == {
        one.verb for one in page.calls(text) if one.program == "kubectl"
    }
    told = text.replace("kubectl -n pfl get service", "kubectl -n pfl describe service")
    assert ["-n pfl describe service coordinator"] == page.strangers(told)


def coordinator_toml(items: list[Object]) -> str:
    """The settings, in whichever ConfigMap they are."""
    [text] = [
        item["data"][name]
        for item in of_kind(items, "ConfigMap")
        for name in item["data"]
        if name.endswith(".toml")
    ]
    return str(text)


def _here(words: list[str], folder: Path) -> list[str]:
    """A container's words with this test's folders and free ports."""
    kept = [word for word in words if not re.match(r"--(host|port|enrol-port|http-port|http-host)=", word)]
    places = {"/var/lib/pfl": folder / "volume", "/trial": folder, "/data": folder / "data"}
    for inside, outside in places.items():
        kept = [re.sub(rf"(^|=){inside}\b", rf"\g<1>{outside}", word) for word in kept]
    return kept


def test_every_piece_is_used() -> None:
    """No file of manifests lies about that no overlay brings in, but the one that is applied by itself."""
    yaml = pytest.importorskip("yaml", reason="left out: no module yaml (package PyYAML)")
    alone = {FOLDER / "loader.yaml"}
    named = {FOLDER / "overlays" / name for name in OVERLAYS}
    todo = sorted(named)
    while todo:
        folder = todo.pop()
        text = yaml.safe_load((folder / "kustomization.yaml").read_text())
        inner = [*text.get("resources", []), *text.get("components", [])]
        inner += [patch["path"] for patch in text.get("patches", []) if "path" in patch]
        inner += [file for one in text.get("configMapGenerator", []) for file in one["files"]]
        for path in ((folder / word).resolve() for word in inner):
            if path not in named:
                named.add(path)
                todo += [path] if path.is_dir() else []
    files = {path for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert {path.parent for path in FOLDER.rglob("kustomization.yaml")} <= named
    assert set() == {str(path) for path in files - named - alone}
