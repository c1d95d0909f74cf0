"""A site is started before its coordinator, with a data folder that lies elsewhere."""

from pathlib import Path

import pytest

from pfl_common.errors import SettingError
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import Machine, write_site

WAITING = "the coordinator is not there yet, waiting for it"


def linked(home: Path, name: str, target: str) -> Path:
    """A data folder on another disk, and a link to it."""
    (home / name).symlink_to(write_site(home / "disk7" / target, samples=12))
    return home / name


def test_sites_that_are_there_before_their_coordinator(tmp_path: Path) -> None:
    """They say that they wait and for how long, are let in when it comes, and are called as their links are."""
    machine = Machine(tmp_path / "machine")
    machine.home.mkdir()
    folders = [linked(machine.home, "hospital_a", "x"), linked(machine.home, "hospital_b", "y")]
    try:
        clients = [machine.client(Path(folder.name)) for folder in folders]
        for client, folder in zip(clients, folders, strict=True):
            machine.wait_for(lambda log=folder.name: WAITING in machine.said(log), client, folder.name)
            assert "for_seconds=60.0" in machine.said(folder.name)
        server = machine.server("--method", "fedavg", "--rounds", "1")
        assert [0, 0] == [machine.finish(c, log=f.name) for c, f in zip(clients, folders, strict=True)]
        assert 0 == machine.stop(server)
    finally:
        machine.end_all()
    states = [path.parent.name for path in sorted(machine.home.glob("state/pfl/sites/*/*/data.txt"))]
    assert ["hospital_a", "hospital_b"] == states


def test_simulated_sites_are_called_as_their_links(tmp_path: Path) -> None:
    """A folder of links is a federation of these names; two links to the same data are refused in words."""
    data = [linked(tmp_path, "hospital_a", "x"), linked(tmp_path, "hospital_b", "y")]
    settings = ServerSettings(method="fedavg", rounds=1, sites=2, state=tmp_path / "coordinator")
    assert {"hospital_a", "hospital_b"} == set(simulate(settings, data, tmp_path / "sites").sites)
    (tmp_path / "hospital_c").symlink_to(tmp_path / "disk7" / "x")
    with pytest.raises(SettingError, match=r"hospital_a and .*hospital_c are the same data folder"):
        simulate(settings, [*data, tmp_path / "hospital_c"], tmp_path / "others")
