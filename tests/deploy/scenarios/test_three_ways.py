"""One specification three ways, the third: killed at named lines and started again, it ends in the simulator's bytes.

That the undisturbed federation ends in them too is `test_same_bytes.py`, for every method. Here one method of each kind
is played; `--long` plays all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common import methods
from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.killing import Federation, Mortals
from tests.deploy.support.personal import WORDS, assert_personal_state_is_real
from tests.deploy.support.processes import write_site

A, B = "hospital_a", "hospital_b"
ROUNDS, HIT = 3, 2
KINDS = ("dualfed", "fedfomo")
"""One method of each kind: sums and personal modules; single updates, replies and slots."""
BESIDE = {
    "dualfed": ("--encoding", "int8:stochastic", "--downlink", "delta"),
    "fedfomo": ("--memory-format", "channels-last"),
}
"""What does not cross of a change is a part of what a site keeps, and lost or kept with it; so is what it was sent.
Another layout of the network in memory rounds otherwise, and each time alike.
"""
POINTS = {A: ("unsaved", "outbox", "received"), B: ("unsaved", "outbox"), "server": ("receipted",)}


@pytest.fixture
def federation(method: str, tmp_path: Path) -> Iterator[Federation]:
    """Two sites of unequal size, the second without one of the classes; a round waits for both."""
    folders = [
        write_site(tmp_path / "data" / A, samples=30, seed=1),
        write_site(tmp_path / "data" / B, samples=22, classes=("a", "b"), seed=2),
    ]
    machine = Mortals(tmp_path / "machine")
    for name, points in POINTS.items():
        for point in points:
            machine.wish(name, point, [HIT])
    # A site looks for a coordinator that is gone every half lease: short, so that it is soon found again.
    words = ("--rounds", str(ROUNDS), "--backbone", "resnet8", "--quorum", "1", "--lease-seconds", "2")
    words += (*WORDS.get(method, ()), *BESIDE.get(method, ()))
    yield Federation(machine, folders, "--method", method, *words)
    machine.end_all()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One method of each kind, or with `--long` all there are: half an hour instead of a minute."""
    chosen = methods.names() if metafunc.config.option.long else KINDS
    metafunc.parametrize("method", [name for name in chosen if name in methods.names()])


def test_killed_at_each_named_point(method: str, federation: Federation, tmp_path: Path) -> None:
    """Both sites die before and after they keep a round, one with its receipt in hand, then the coordinator."""
    federation.serve()
    federation.enter(A, B)
    die_unsaved(federation)
    federation.enter(A, B)
    die_unsent(federation)
    federation.enter(A)
    die_with_receipts(federation)
    federation.serve()
    federation.enter(B)
    assert [0, 0] == federation.end()
    assert 0 == federation.machine.stop(federation.server)
    assert {A: 4, B: 3, "server": 2} == {name: len(pids) for name, pids in federation.pids.items()}
    assert [["committed"]] * ROUNDS == [federation.status(number + 1) for number in range(ROUNDS)]

    spec = RunSpec.from_json((federation.run_of(A) / "spec.json").read_text())
    given = {"method": method, "sites": 2, "state": tmp_path / "alone" / "coordinator"}
    settings = settle(ServerSettings, given, what="test")
    alone = simulate(settings, federation.folders, tmp_path / "alone" / "sites", pinned=spec)
    assert_equal(alone.coordinator / "checkpoints", federation.run / "checkpoints", expected=2)
    for site in (A, B):
        for folder, count in (("generations", 2), ("serving", 1)):
            assert_equal(alone.sites[site] / folder, federation.run_of(site) / folder, expected=count)
    assert_personal_state_is_real(method, {site: federation.run_of(site) for site in (A, B)})


def die_unsaved(federation: Federation) -> None:
    """Both sites have trained; nothing of it is in their vaults."""
    for site in (A, B):
        assert HIT == federation.death(site, "unsaved")
        assert (HIT - 1, True) == federation.kept(site)


def die_unsent(federation: Federation) -> None:
    """Both sites have the round in vault and outbox; the coordinator has heard nothing of it."""
    for site in (A, B):
        assert HIT == federation.death(site, "outbox")
        assert (HIT, True) == federation.kept(site)
    assert [] == federation.receipts(HIT)


def die_with_receipts(federation: Federation) -> None:
    """One site's update is in and it knows; the round waits for the other, which is away."""
    assert HIT == federation.death(A, "received")
    federation.enter(A)
    assert HIT == federation.death("server", "receipted")
    assert [A] == federation.receipts(HIT)
    assert ["open"] == federation.status(HIT)


def assert_equal(undisturbed: Path, folder: Path, *, expected: int) -> None:
    """The same tensor files, byte for byte, whatever the serial in their names, which counts tasks done."""
    found = [
        {re.sub(r"(-1)-\d+\.", r"\1.", file.name): file.read_bytes() for file in place.glob("*.safetensors")}
        for place in (undisturbed, folder)
    ]
    assert expected == len(found[0])
    assert found[0].keys() == found[1].keys()
    assert [] == [name for name, content in found[0].items() if content != found[1][name]]
