"""A site's own state of the run before: used only where it is this very site's of that very run, and stays at home."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.run_folder.earlier_run import find_earlier
from pfl_client.run_folder.folder import RunFolder
from pfl_common.errors import StateError
from pfl_common.spec.beginning import Beginning
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import Mark
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.run_folder.test_folder import take_part
from tests.client.support.scripted_site import SITE, assign, pin

BEFORE = pin("run-1")
NOW = replace(pin("run-2"), begins_from=Beginning("run-1", BEFORE.hash, 3, "0" * 64))
PERSONAL = Entry("sum.head.weight", "float32", (1,))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A site's runs: it has taken part in one."""
    take_part(tmp_path / "run-1", BEFORE)
    return tmp_path


def test_its_generations_are_named_and_read_where_they_are(runs: Path) -> None:
    """A task that begins from a round of the run before starts from that generation; later tasks from the new vault."""
    found = find_earlier(runs, NOW, SITE)
    assert (Mark(1, 1),) == found.marks()
    assert bytes(100) == found.at(1).read_bytes()
    folder = RunFolder(runs / "run-2", NOW, SITE, envelopes=OpenEnvelopes())
    assert ((), (Mark(1, 1),)) == folder.marks()
    assignment = assign(run="run-2")
    begun = replace(assignment, task=replace(assignment.task, before=1))
    assert found.at(1) == folder.job(begun, b"").kept
    assert None is folder.job(assignment, b"").kept
    folder.close()


def test_a_state_that_went_meanwhile(runs: Path) -> None:
    """The coordinator counts on what the site had named: its loss is an error that names the folder."""
    found = find_earlier(runs, NOW, SITE)
    found.at(1).unlink()
    with pytest.raises(StateError, match="run-1"):
        found.at(1)


@pytest.mark.parametrize(
    "spec",
    [
        replace(NOW, begins_from=None),
        replace(NOW, begins_from=Beginning("run-9", BEFORE.hash, 3, "0" * 64)),
        replace(NOW, begins_from=Beginning("run-1", "1" * 64, 3, "0" * 64)),
        replace(NOW, manifests={**NOW.manifests, "train/train/up": (PERSONAL,)}),
        replace(NOW, method="fedper"),
    ],
    ids=[
        "from none",
        "a run it does not know",
        "another of that name",
        "personal would leave",
        "other method",
    ],
)
def test_what_is_not_used(runs: Path, spec: RunSpec) -> None:
    """Whatever the coordinator names, the site begins as a new one unless all of it fits."""
    assert None is find_earlier(runs, spec, SITE)


def test_another_sites_state_is_not_used(runs: Path) -> None:
    """A state folder belongs to one site."""
    assert None is find_earlier(runs, NOW, "hospital-b")
