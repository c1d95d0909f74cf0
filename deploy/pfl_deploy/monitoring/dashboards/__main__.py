"""Writes the dashboards' JSON files; run it after a dashboard was changed here."""

from __future__ import annotations

import sys
from pathlib import Path

from pfl_deploy.monitoring.dashboards import write_all

if __name__ == "__main__":
    write_all(Path(*sys.argv[1:]))
