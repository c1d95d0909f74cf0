"""A run's folder at a site is that of one specification."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from pfl_client.run_folder.folder import MOST_ATTEMPTS, RunFolder
from pfl_client.run_folder.vault_generations import Owner, Vault
from pfl_client.trainer_process.api import Done, Measured
from pfl_client.trainer_process.task_errors import PersonalTensor, Tampered
from pfl_common.errors import StateError
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import Blob, Joined, Mark, header_down
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.support.file_steps import Crash, break_after
from tests.client.support.scripted_site import SITE, assign, pin


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


def do(folder: RunFolder, number: int, accuracy: float | None) -> None:
    """A task as the daemon and the trainer do it together, unless it was done before; it measured the round before."""
    assignment = assign(number=number, since=number - 1)
    if folder.has_answer(assignment.key, assignment.task):
        return
    job = folder.job(assignment, b"")
    job.keep_as.write_bytes(bytes(100 + number))
    found = None if accuracy is None else Measured(number - 1, accuracy, 0.5, 12)
    better = found if found and job.best and found.beats(job.best.measured) else None
    if better is not None and job.best is not None:
        job.best.write_as.write_text(f"after {better.round}")
    folder.keep(assignment, Done(up=b"update", best=better))


def live(path: Path) -> RunFolder:
    """A life of the site in a run that keeps the best."""
    return RunFolder(path, replace(pin(), keep="best"), SITE, envelopes=OpenEnvelopes())


def test_a_crash_at_any_operation_of_a_task_costs_no_best_model(tmp_path: Path) -> None:
    """What a task has measured is in force before the task counts as done: then it is not done again."""
    for steps in range(60):
        first = live(tmp_path / str(steps))
        do(first, 1, None)
        do(first, 2, 0.5)
        with pytest.MonkeyPatch.context() as patch:
            asked = break_after(patch, steps, Crash())
            with suppress(Crash):
                do(first, 3, 0.9)
        first.close()
        again = live(tmp_path / str(steps))
        do(again, 3, 0.9)
        kept = again.job(assign(number=4, since=3), b"").best
        assert kept is not None
        assert kept.file is not None
        assert ("after 2", 0.9) == (kept.file.read_text(), kept.measured.accuracy)
        assert Mark(3, 1) == again.vault.marks()[0]
        again.close()
        if asked() <= steps:
            break
    assert 12 < steps < 59


def test_the_best_model_is_for_runs_that_keep_it(tmp_path: Path) -> None:
    """In others no task is asked to write one."""
    folder = RunFolder(tmp_path, pin(), SITE, envelopes=OpenEnvelopes())
    assert None is folder.job(assign(), b"").best
    assert not (tmp_path / "best").exists()
    folder.close()


@pytest.mark.parametrize(
    "changed",
    [{"round": 4}, {"round": 10**9}, {"attempt": MOST_ATTEMPTS + 1}],
    ids=["next", "far", "attempts"],
)
def test_a_task_beyond_the_runs_rounds(tmp_path: Path, changed: dict[str, int]) -> None:
    """The specification said three: no more are trained, whatever the coordinator asks for."""
    folder, honest = live(tmp_path), assign(number=3)
    folder.letter(honest)
    task = replace(honest.task, **changed)
    with pytest.raises(Tampered, match="in a run of 3 rounds"):
        folder.letter(replace(honest, task=task, header=header_down(pin(), task, state="hash")))
    folder.close()


def test_a_download_larger_than_its_tensors(tmp_path: Path) -> None:
    """Refused by its announced size, before room is made for it, or waited for."""
    folder, honest = live(tmp_path), assign()
    with pytest.raises(Tampered, match="would have 1125899906842624 bytes, and its tensors have 8"):
        folder.letter(replace(honest, blob=replace(honest.blob, size=1 << 50)))
    joined = Joined(pin().to_json(), Blob("d" * 64, 9))
    with pytest.raises(Tampered, match="would have 9 bytes, and its tensors have 8"):
        folder.first_model.accept(joined)
    folder.close()


def test_an_update_with_a_tensor_of_the_vault_is_not_sealed(tmp_path: Path) -> None:
    """Whatever the trainer says: neither upload nor generation comes into force."""
    down, up = (Entry(name, "float32", (1,)) for name in ("encoder.bias", "show.encoder.weight"))
    manifests = {**pin().manifests, "train/train/down": (down,), "train/train/up": (up,)}
    folder = RunFolder(tmp_path, replace(pin(), manifests=manifests), SITE, envelopes=OpenEnvelopes())
    job = folder.job(assign(), b"")
    job.keep_as.write_bytes(save({"encoder.weight": np.zeros(1, np.float32)}))
    with pytest.raises(PersonalTensor):
        folder.keep(assign(), Done(up=b"update"))
    assert ((), None) == (folder.vault.marks(), folder.vault.upload)
    folder.keep(assign(), Done(up=b"update", told=("encoder.weight",)))
    assert assign().key == folder.vault.upload
    folder.close()
