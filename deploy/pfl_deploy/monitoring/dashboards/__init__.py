"""Grafana's dashboards, generated from plain data.

`python -m pfl_deploy.monitoring.dashboards FOLDER` writes their files.
"""

from __future__ import annotations

from pathlib import Path

from pfl_deploy.monitoring.dashboards.build import Dashboard, write
from pfl_deploy.monitoring.dashboards.comparison import COMPARISON
from pfl_deploy.monitoring.dashboards.federation import FEDERATION
from pfl_deploy.monitoring.dashboards.site import SITE

DASHBOARDS: dict[str, Dashboard] = {
    "federation.json": FEDERATION,
    "site.json": SITE,
    "comparison.json": COMPARISON,
}


def write_all(folder: Path) -> None:
    """Write every dashboard's file, where Grafana's provisioning looks for it."""
    for name, dashboard in DASHBOARDS.items():
        (folder / name).write_text(write(dashboard), encoding="utf-8")
