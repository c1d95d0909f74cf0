"""compose.yaml: everything it names exists, and nobody in it may do more than it has to."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.containers_read import dockerfile, places
from tests.deploy.containers_read.places import Words, mounts
from tests.deploy.support import commands

TOP = Path(__file__).parents[3]
FOLDER = TOP / "deploy" / "docker"
FILE = dockerfile.read((FOLDER / "Dockerfile").read_text())
WATCHERS = ("prometheus", "alertmanager", "grafana")
SITES = ("hospital-a", "hospital-b", "hospital-c")


@cache
def parsed(path: Path) -> Any:
    """A YAML file's content."""
    yaml = pytest.importorskip("yaml", reason="left out: no module yaml (package PyYAML)")
    return yaml.safe_load(path.read_text())


def services() -> dict[str, Words]:
    """The services by name, anchors merged."""
    found: dict[str, Words] = parsed(FOLDER / "compose.yaml")["services"]
    return found


def test_everybody_is_there() -> None:
    """A coordinator, three sites with an invitation each, and what watches them."""
    invited = {f"invite-{name}" for name in SITES}
    assert {"coordinator", *SITES, *invited, *WATCHERS} == set(services())


def test_nobody_may_do_more_than_needed() -> None:
    """A read-only root, no capability, no new privileges, nothing open but to this machine."""
    for name, service in services().items():
        assert True is service["read_only"], name
        assert ["ALL"] == service["cap_drop"], name
        assert ["no-new-privileges:true"] == service["security_opt"], name
        assert "privileged" not in service and "user" not in service, name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_every_file_that_is_mounted_exists_and_is_only_read() -> None:
    """An engine would make an empty folder of a file that is missing."""
    for name, service in services().items():
        for source, *place in mounts(service):
            if source.startswith("."):
                assert (FOLDER / source).exists(), f"{name} mounts {source}"
                assert "ro" == place[-1], f"{name} may write to {source}"


def test_everything_is_kept_where_it_lasts() -> None:
    """State, home and invitations lie in volumes, what is in the way only in memory, data are read."""
    assert [] == places.complaints(services(), FILE)


STRAYS: dict[str, tuple[str, str, list[str], str]] = {
    "a coordinator's volume elsewhere": (
        "coordinator", "volumes", ["coordinator:/var/lib/other"],
        "coordinator keeps /var/lib/pfl/coordinator in its image",
    ),
    "a site's volume elsewhere": (
        "hospital-b", "volumes", ["hospital-b:/var/lib/other", "invitation-b:/invitation:ro", "../d:/data:ro"],
        "hospital-b keeps /var/lib/pfl/sites in its image",
    ),
    "a volume of invitations elsewhere": (
        "invite-hospital-a", "volumes", ["coordinator:/var/lib/other", "invitation-a:/invitation"],
        "invite-hospital-a keeps /var/lib/pfl in its image",
    ),
    "invitations that cannot be written": (
        "invite-hospital-c", "volumes", ["coordinator:/var/lib/pfl", "invitation-c:/invitation:ro"],
        "invite-hospital-c keeps /invitation in invitation-c, not in",
    ),
    "a state that cannot be written": (
        "coordinator", "volumes", ["coordinator:/var/lib/pfl:ro"], "keeps /var/lib/pfl in coordinator, not in"
    ),
    "a state in memory": (
        "coordinator", "command", ["--state", "/tmp/coordinator"], "coordinator keeps /tmp/coordinator in its image"
    ),
    "a folder of the project as state": (
        "hospital-a", "volumes", ["./state:/var/lib/pfl", "invitation-a:/invitation:ro", "../d:/data:ro"],
        "hospital-a keeps /var/lib/pfl in ./state",
    ),
    "two sites in one volume": (
        "hospital-c", "volumes", ["hospital-b:/var/lib/pfl", "invitation-c:/invitation:ro", "../d:/data:ro"],
        "hospital-c and hospital-b keep what is theirs in one volume",
    ),
    "data that can be changed": (
        "hospital-a", "volumes", ["hospital-a:/var/lib/pfl", "invitation-a:/invitation:ro", "../d:/data"],
        "hospital-a reads /data, where nothing is mounted to be read only",
    ),
    "data elsewhere": (
        "hospital-a", "volumes", ["hospital-a:/var/lib/pfl", "invitation-a:/invitation:ro", "../d:/date:ro"],
        "hospital-a reads /data, where nothing is mounted",
    ),
    "an invitation elsewhere": (
        "hospital-a", "command", ["--join", "/invited/hospital_a.join"], "hospital-a reads /invited/hospital_a.join"
    ),
    "memory elsewhere": ("coordinator", "tmpfs", ["/nowhere:size=256m,mode=1777"], "coordinator has no memory at /tmp"),
    "a site's memory elsewhere": ("hospital-c", "tmpfs", ["/nowhere"], "hospital-c has no memory at /tmp"),
    "a watcher's memory elsewhere": ("grafana", "tmpfs", ["/nowhere"], "grafana has no memory at /tmp"),
    "series that are lost": (
        "prometheus", "volumes", ["prometheus:/var/prometheus"], "prometheus keeps /prometheus in its image"
    ),
    "silences that are lost": (
        "alertmanager", "command", ["--storage.path=/data"], "alertmanager keeps /data in its image"
    ),
    "a Grafana that forgets": (
        "grafana", "volumes", ["grafana:/grafana"], "grafana keeps /var/lib/grafana in its image"
    ),
}  # fmt: skip


@pytest.mark.parametrize("stray", STRAYS)
def test_what_is_kept_elsewhere_is_seen(stray: str) -> None:
    """The check above is able to fail: one value changed in one service is complained about."""
    name, field, value, words = STRAYS[stray]
    changed = copy.deepcopy(services())
    changed[name][field] = value
    assert [] != [one for one in places.complaints(changed, FILE) if words in one]


def test_every_volume_and_network_is_declared_and_used() -> None:
    """A name typed wrong would be a new, empty volume."""
    whole = parsed(FOLDER / "compose.yaml")
    used = {source for service in services().values() for source, *_ in mounts(service) if "." not in source}
    assert used == set(whole["volumes"])
    networks = {network for service in services().values() for network in service.get("networks", [])}
    assert networks == set(whole["networks"])


@pytest.mark.parametrize("name", SITES)
def test_a_site_joins_by_its_own_invitation_and_no_other(name: str) -> None:
    """The invitation one service writes is the one this site reads, and it cannot see another's."""
    site, invitation = services()[name], services()[f"invite-{name}"]
    called = name.replace("-", "_")
    assert [called] == invitation["command"]
    assert ["--join", f"/invitation/{called}.join"] == site["command"]
    written = {source for source, place, *_ in mounts(invitation) if place == "/invitation"}
    assert written == {source for source, place, *_ in mounts(site) if place == "/invitation"}
    others = {source for other in set(SITES) - {name} for source, *_ in mounts(services()[other])}
    assert set() == written & others
    assert "service_completed_successfully" == site["depends_on"][f"invite-{name}"]["condition"]


@pytest.mark.parametrize("name", SITES)
def test_a_site_reaches_the_coordinator_and_nothing_outside(name: str) -> None:
    """Its one network leads nowhere else; its data are the repository's sample."""
    site = services()[name]
    assert ["federation"] == site["networks"]
    assert True is parsed(FOLDER / "compose.yaml")["networks"]["federation"]["internal"]
    (data,) = [source for source, place, *_ in mounts(site) if place == "/data"]
    assert {"train.npz", "test.npz"} <= {path.name for path in (FOLDER / data).iterdir()}
    assert "on-failure" == site["restart"]


def test_an_invitation_is_written_where_the_coordinators_process_is_seen() -> None:
    """`pfl invite` looks for the process and the host name that the coordinator published."""
    coordinator = services()["coordinator"]
    for name in SITES:
        one = services()[f"invite-{name}"]
        assert "service:coordinator" == one["pid"]
        assert coordinator["hostname"] == one["hostname"]
        assert coordinator["image"] == one["image"]
        assert mounts(coordinator)[0] in mounts(one)
        assert "service_healthy" == one["depends_on"]["coordinator"]["condition"]
    assert "coordinator" == coordinator["environment"]["PFL_ADVERTISE"] == coordinator["hostname"]


@pytest.mark.parametrize(
    ("name", "program"), [("coordinator", "pfl-server"), *[(s, "pfl-client") for s in SITES]]
)
def test_our_programs_get_what_they_understand(name: str, program: str) -> None:
    """Options, variables, the image's stage and its ports are those that exist."""
    service = services()[name]
    target = service["build"]["target"]
    assert program == FILE.words(target, "ENTRYPOINT")[0]
    assert set() == commands.unknown_options(program, service["command"])
    assert set() == set(service.get("environment", {})) - commands.variables(program)
    opened = set(FILE.last(target, "EXPOSE").split())
    assert {port.split(":")[-1] for port in service.get("ports", [])} <= opened
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert set(service["build"]["args"]) <= {"VARIANT", "TORCH_INDEX"}


def test_prometheus_finds_its_files_rules_and_targets() -> None:
    """Every file that prometheus.yaml names lies where it is mounted; every target is a service and its port."""
    service = services()["prometheus"]
    config = parsed(TOP / "deploy/prometheus/prometheus.yaml")
    assert f"--config.file={place_of('prometheus.yaml', service)}" in service["command"]
    assert "/etc/prometheus/rules" == place_of("rules", service)
    assert [] == [rule for rule in config["rule_files"] if not list((TOP / "deploy/prometheus").glob(rule))]
    named = re.findall(r"targets/(\w+\.yaml)\]", (TOP / "deploy/prometheus/prometheus.yaml").read_text())
    assert {path.name for path in (FOLDER / "targets").iterdir()} == set(named)
    for path in (FOLDER / "targets").iterdir():
        for target in parsed(path)[0]["targets"]:
            name, port = target.split(":")
            assert port == port_of(name), target
            assert set(services()[name]["networks"]) & set(service["networks"]), target


def port_of(name: str) -> str:
    """Where a service shows its numbers."""
    service = services()[name]
    if "build" in service:
        return FILE.pairs(service["build"]["target"], "ENV")["PFL_HTTP_PORT"]
    return str(service["ports"][0].split(":")[-1])


def place_of(name: str, service: Words) -> str:
    """Where a file or folder of ours is mounted."""
    return next(place for source, place, *_ in mounts(service) if Path(source).name == name)


@pytest.mark.parametrize("name", WATCHERS)
def test_a_watcher_is_asked_for_its_health_where_it_listens(name: str) -> None:
    """Each is asked on its own port, and runs in a version that is named."""
    service = services()[name]
    asked = re.search(r"http://127\.0\.0\.1:(\d+)/", " ".join(service["healthcheck"]["test"]))
    assert asked is not None
    assert asked[1] == service["ports"][0].split(":")[-1]
    assert re.fullmatch(r"\$\{\w+:-[\w/]+:v?\d+\.\d+\.\d+\}", service["image"])


def test_grafana_finds_dashboards_and_prometheus() -> None:
    """Its provisioning says where dashboards lie and by which variable it finds Prometheus."""
    service = services()["grafana"]
    provider = parsed(next((TOP / "deploy/grafana/provisioning/dashboards").glob("*.yaml")))["providers"][0]
    assert provider["options"]["path"] == place_of("dashboards", service)
    source = parsed(next((TOP / "deploy/grafana/provisioning/datasources").glob("*.yaml")))["datasources"][0]
    assert f"http://prometheus:{port_of('prometheus')}" == service["environment"][source["url"].strip("${}")]
    assert "/etc/grafana/provisioning" == place_of("provisioning", service)


def test_every_choice_is_told() -> None:
    """Each variable that compose.yaml reads stands in the README beside it."""
    read = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yaml").read_text()))
    told = (FOLDER / "README.md").read_text()
    assert set() == {name for name in read if f"`{name}`" not in told}
