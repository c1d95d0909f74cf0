"""Finished models on a user's machine, for tests of the commands that use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pfl_common.app.config import settle
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings


def finish(folders: Sequence[Path], state: Path, **given: Any) -> Path:
    """A short run of these data folders; the folder with their sites' state."""
    words = {"method": "fedrod", "rounds": 2, "sites": len(folders), "state": state / "coordinator", **given}
    simulate(settle(ServerSettings, words, what="test"), folders, state / "sites")
    return state / "sites"
