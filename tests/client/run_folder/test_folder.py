"""A run's folder at a site is that of one specification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.run_folder.folder import RunFolder
from pfl_client.run_folder.vault_generations import Owner, Vault
from pfl_common.errors import StateError
from pfl_common.spec.messages import Mark
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.daemon.test_loop import SITE, pin


def come_and_go(folder: Path, spec: RunSpec) -> None:
    """Open the folder and close it."""
    RunFolder(folder, spec, SITE, envelopes=OpenEnvelopes()).close()


def take_part(folder: Path, spec: RunSpec) -> None:
    """Leave a state behind, as after a round."""
    come_and_go(folder, spec)
    vault = Vault(folder, Owner(spec.id, spec.hash, SITE))
    vault.draft.write_bytes(bytes(100))
    vault.commit(Mark(1, 1), vault.draft, None, since=0)
    vault.close()


def test_another_run_under_the_same_name(tmp_path: Path) -> None:
    """What differs is named, with what the operator can do and what this site can; nothing of the run is lost."""
    folder, spec = tmp_path / "run-1", pin()
    take_part(folder, spec)
    with pytest.raises(StateError) as caught:
        come_and_go(folder, replace(spec, rounds=9, seed=8))
    said = str(caught.value)
    for words in ("run run-1 is not the one", "rounds, seed were others", "another --seed", str(folder)):
        assert words in said
    come_and_go(folder, spec)


def test_a_specification_that_was_not_written_to_its_end(tmp_path: Path) -> None:
    """Without it nobody can say what differs, but that it differs still holds."""
    folder, spec = tmp_path / "run-1", pin()
    take_part(folder, spec)
    (folder / "spec.json").write_text("{")
    with pytest.raises(StateError, match="belongs to spec"):
        come_and_go(folder, replace(spec, rounds=9))
    come_and_go(folder, spec)
    assert spec.to_json() == (folder / "spec.json").read_text()
