"""NVFlare as it is deployed: a provisioned project with mutual TLS, started by its own scripts, a job handed in."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

from tests.benchmarks.peers import noop_model
from tests.benchmarks.peers.gauges import COORDINATOR
from tests.benchmarks.peers.stage import Stage
from tests.benchmarks.peers.workload import LOOPBACK, Order

APP = Path(__file__).parent / "apps" / "nvflare"
PROJECT = "noop"
SERVER = "localhost"
ADMIN = "admin@example.org"
PORT = 8002
SETTINGS: dict[str, str] = {}
BUILDERS = """
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {template_file: [master_template.yml]}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {config_folder: config}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


def put_up(stage: Stage, order: Order) -> None:
    """Provision the project, run everyone's start script, then hand in the job."""
    # It listens at the address that its name stands for.
    server = SERVER if order.host == LOOPBACK else order.host
    kits = _provision(stage, order.case.sites, server)
    _keep_storage_inside(stage, kits / server)
    stage.start("server", COORDINATOR, [kits / server / "startup" / "start.sh"])
    stage.wait_until(partial(stage.log_says, "server", "Server started"), "the server to start")
    for number, site in enumerate(_name_sites(order.case.sites)):
        stage.start_site(number, site, [kits / site / "startup" / "start.sh"])
    for site in _name_sites(order.case.sites):
        stage.wait_until(partial(stage.log_says, site, "Successfully registered client"), f"{site} to join")
    job = _write_job(stage, order)
    stage.call("submit", ["nvflare", "job", "submit", "-j", job, "--startup-kit", kits / ADMIN])


def _name_sites(sites: int) -> list[str]:
    return [f"site-{number}" for number in range(1, sites + 1)]


def _provision(stage: Stage, sites: int, server: str) -> Path:
    people = [f"  - {{name: {server}, type: server, org: bench, fed_learn_port: {PORT}}}"]
    people += [f"  - {{name: {site}, type: client, org: bench}}" for site in _name_sites(sites)]
    people += [f"  - {{name: {ADMIN}, type: admin, org: bench, role: project_admin}}"]
    head = ["api_version: 3", f"name: {PROJECT}", "description: no-op", "participants:"]
    project = stage.folder / "project.yml"
    project.write_text("\n".join([*head, *people]) + BUILDERS, encoding="utf-8")
    kits = stage.folder / "kits"
    stage.call("provision", ["nvflare", "provision", "-p", project, "-w", kits, "--force"])
    return kits / PROJECT / "prod_00"


def _keep_storage_inside(stage: Stage, kit: Path) -> None:
    """Jobs and snapshots lie below /tmp/nvflare unless the kit's local settings say otherwise."""
    told = (kit / "local" / "resources.json.default").read_text(encoding="utf-8")
    settings = told.replace("/tmp/nvflare/", f"{stage.folder}/storage/")
    (kit / "local" / "resources.json").write_text(settings, encoding="utf-8")


def _write_job(stage: Stage, order: Order) -> Path:
    case = order.case
    job = stage.folder / "job"
    for name in ("config", "custom"):
        (job / "app" / name).mkdir(parents=True)
    for source in (*APP.glob("*.py"), Path(noop_model.__file__)):
        shutil.copy(source, job / "app" / "custom")
    controller = {"sites": case.sites, "rounds": order.rounds, "size": case.size, "marks": str(stage.marks)}
    server = {"format_version": 2, "workflows": [_part("noop_fedavg.MarkedFedAvg", controller)]}
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": _part(CLIENT_API, _script(case.size))}],
        "components": [],
    }
    _write(job / "app" / "config" / "config_fed_server.json", server)
    _write(job / "app" / "config" / "config_fed_client.json", client)
    deployed = {"name": PROJECT, "min_clients": case.sites, "deploy_map": {"app": ["@ALL"]}}
    _write(job / "meta.json", deployed | {"resource_spec": {}})
    return job


CLIENT_API = "nvflare.app_common.executors.client_api_executor.ClientAPIExecutor"


def _script(size: str) -> dict[str, object]:
    """What NVFlare's own ScriptRunner writes for a numpy script inside the job's process."""
    return {
        "execution_mode": "in_process",
        "task_script_path": "noop_site.py",
        "task_script_args": f"--size {size}",
        "params_exchange_format": "numpy",
        "server_expected_format": "numpy",
        "params_transfer_type": "FULL",
    }


def _part(path: str, arguments: dict[str, object]) -> dict[str, object]:
    return {"id": path.rpartition(".")[2].lower(), "path": path, "args": arguments}


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
