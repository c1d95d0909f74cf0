"""Flower as it is deployed: a SuperLink with TLS, a SuperNode for each site, apps in processes of their own."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from tests.benchmarks.peers import certificates, noop_model
from tests.benchmarks.peers.gauges import COORDINATOR
from tests.benchmarks.peers.stage import Stage
from tests.benchmarks.peers.workload import Order

APP = Path(__file__).parent / "apps" / "flower"
PORT = 8000
FIRST_SITE_PORT = 9100
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}


def put_up(stage: Stage, order: Order) -> None:
    """Start SuperLink and SuperNodes, then hand in the run."""
    files, address = certificates.issue(stage.folder / "certificates", order.host), f"{order.host}:{PORT}"
    app = shutil.copytree(APP, stage.folder / "app")
    shutil.copy(noop_model.__file__, app / "noop")
    _connect(stage, files.authority, address)
    _start_link(stage, files, order.host)
    for site in range(order.case.sites):
        _start_node(stage, files.authority, address, site)
    said = stage.call("flwr-run", ["flwr", "run", app, "bench", "--run-config", _describe(stage, order)])
    run = said.split()[-1]
    stage.ask_on_failure("serverapp", ["flwr", "log", run, "bench", "--show"])


def _connect(stage: Stage, authority: Path, address: str) -> None:
    """Tell the `flwr` command where the SuperLink is and whom to trust."""
    home = stage.folder / "home" / ".flwr"
    home.mkdir()
    lines = ["[superlink]", 'default = "bench"', "[superlink.bench]"]
    lines += [f'address = "{address}"', f'root-certificates = "{authority}"']
    (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _start_link(stage: Stage, files: certificates.Certificates, host: str) -> None:
    stage.start(
        "superlink",
        COORDINATOR,
        [
            "flower-superlink",
            "--host",
            host,
            "--ssl-ca-certfile",
            files.authority,
            "--ssl-certfile",
            files.certificate,
            "--ssl-keyfile",
            files.key,
            "--disable-runtime-dependency-installation",
        ],
    )
    stage.wait_until(partial(stage.log_says, "superlink", "Uvicorn running on"), "the SuperLink to listen")


def _start_node(stage: Stage, authority: Path, address: str, site: int) -> None:
    stage.start_site(
        site,
        f"supernode-{site}",
        [
            "flower-supernode",
            "--root-certificates",
            authority,
            "--superlink",
            address,
            "--port",
            str(FIRST_SITE_PORT + site),
        ],
    )


def _describe(stage: Stage, order: Order) -> str:
    case = order.case
    return f'size="{case.size}" sites={case.sites} rounds={order.rounds} marks="{stage.marks}"'
