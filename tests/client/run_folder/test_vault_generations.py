"""The vault: two generations, one pointer, and a crash at any instant."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pfl_client.run_folder.vault_generations import Owner, Vault
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.errors import StateError
from pfl_common.files import atomic
from pfl_common.spec.messages import Mark
from tests.client.support.file_steps import STEPS, Crash, break_after

OWNER = Owner("run-1", "abc", "hospital-a")


def put(vault: Vault, mark: Mark, words: str, *, since: int, upload: str | None = None) -> None:
    """Commit a generation with recognisable content, as the trainer and the daemon do together."""
    vault.draft.write_text(words)
    vault.commit(mark, vault.draft, upload, since=since)


def read(vault: Vault) -> dict[int, str]:
    """What is in force, by round."""
    return {mark.round: vault.at(mark.round).read_text() for mark in vault.marks()}


def test_a_new_vault_is_empty(tmp_path: Path) -> None:
    """A site that never took part starts from the first model."""
    vault = Vault(tmp_path / "state" / "vault", OWNER)
    assert ((), None, None) == (vault.marks(), vault.at(0), vault.upload)
    assert 0o700 == (tmp_path / "state" / "vault").stat().st_mode & 0o777
    vault.close()


def test_the_two_newest_generations_stay(tmp_path: Path) -> None:
    """Before and after the last round, newest first; older files are gone; the next daemon finds the same."""
    vault = Vault(tmp_path, OWNER)
    for number in (1, 3, 4):
        put(vault, Mark(number, 1), f"round {number}", since={1: 0, 3: 1, 4: 3}[number], upload=f"{number}")
    vault.close()
    again = Vault(tmp_path, OWNER)
    assert (Mark(4, 1), Mark(3, 1)) == again.marks()
    assert {4: "round 4", 3: "round 3"} == read(again)
    assert "4" == again.upload
    assert 2 == len(list((tmp_path / "generations").iterdir()))
    again.close()


def test_an_abandoned_attempt_is_rolled_back(tmp_path: Path) -> None:
    """The next attempt starts from before it; what it made goes, what it started from stays."""
    vault = Vault(tmp_path, OWNER)
    put(vault, Mark(3, 1), "committed", since=0)
    put(vault, Mark(5, 1), "abandoned", since=3, upload="000005-1-train")
    assert "committed" == vault.at(3).read_text()
    put(vault, Mark(6, 1), "after", since=3)
    assert {6: "after", 3: "committed"} == read(vault)
    assert vault.upload is None
    vault.close()


def test_the_same_attempt_can_be_done_again(tmp_path: Path) -> None:
    """With a torn outbox a task is repeated: its second generation takes the place of its first."""
    vault = Vault(tmp_path, OWNER)
    put(vault, Mark(1, 1), "one", since=0)
    put(vault, Mark(2, 1), "two", since=1)
    put(vault, Mark(2, 1), "two again", since=1)
    assert {2: "two again", 1: "one"} == read(vault)
    vault.close()


def test_a_generation_it_does_not_have_is_an_error(tmp_path: Path) -> None:
    """A state folder brought back from an old copy is noticed, not trained on."""
    vault = Vault(tmp_path, OWNER)
    put(vault, Mark(3, 1), "x", since=0)
    with pytest.raises(StateError, match=r"round 4, .*rounds 3"):
        vault.at(4)
    vault.draft.write_text("y")
    with pytest.raises(StateError, match="state of round 4"):
        vault.commit(Mark(5, 1), vault.draft, None, since=4)
    assert {3: "x"} == read(vault)
    vault.close()


@pytest.mark.parametrize(
    ("mark", "since", "left"),
    [(Mark(3, 1), 2, {3: "new", 2: "two"}), (Mark(2, 1), 1, {2: "new", 1: "one"})],
    ids=["next round", "same attempt again"],
)
def test_a_crash_at_any_file_operation_leaves_the_old_or_the_new(
    tmp_path: Path, mark: Mark, since: int, left: dict[int, str]
) -> None:
    """Whatever step is the last one done, the generations and the upload in force belong together."""
    before = ({1: "one", 2: "two"}, "upload 2")
    after = (left, "upload new")
    found = []
    for steps in range(20):
        folder = tmp_path / str(steps)
        vault = Vault(folder, OWNER)
        put(vault, Mark(1, 1), "one", since=0, upload="upload 1")
        put(vault, Mark(2, 1), "two", since=1, upload="upload 2")
        with pytest.MonkeyPatch.context() as patch:
            asked = break_after(patch, steps, Crash())
            with suppress(Crash):
                put(vault, mark, "new", since=since, upload="upload new")
        vault.close()
        again = Vault(folder, OWNER)
        found.append((read(again), again.upload))
        assert not list(folder.glob("*.part"))
        assert 2 == len(list((folder / "generations").iterdir()))
        again.close()
        if asked() <= steps:
            break
    assert [before, after] == [state for n, state in enumerate(found) if state not in found[:n]]
    assert len(found) > 6


def test_what_the_pointer_names_lasts_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss the new pointer must not name a file that was never on the disk."""
    vault, done = Vault(tmp_path, OWNER), []
    for name in STEPS:
        genuine = getattr(atomic, name)
        monkeypatch.setattr(
            atomic,
            name,
            lambda *a, name=name, genuine=genuine: (done.append((name, a[-1])), genuine(*a)),
        )
    put(vault, Mark(1, 1), "one", since=0)
    names = [name for name, _ in done]
    assert ["sync", "move", "settle", "fill", "move", "settle"] == names[:6]
    assert {"remove"} >= set(names[6:]), "what is void goes only when the new pointer is in force"
    assert (vault.draft, tmp_path / "generations", tmp_path) == (done[0][1], done[2][1], done[5][1])
    vault.close()


def test_an_error_after_the_exchange_is_no_return_to_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A living daemon and its disk agree on what is in force, whichever operation failed."""
    vault = Vault(tmp_path, OWNER)
    put(vault, Mark(1, 1), "one", since=0)
    for steps in range(6):
        with monkeypatch.context() as patch:
            break_after(patch, steps, OSError(errno.EIO, "broken disk"))
            with pytest.raises(OSError, match="broken disk"):
                put(vault, Mark(2, steps + 1), f"two {steps}", since=1)
        held = (vault.marks(), read(vault))
        vault.close()
        vault = Vault(tmp_path, OWNER)
        assert held == (vault.marks(), read(vault))
    vault.close()


def test_a_full_disk_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room is a reason for declining, and the old state stays in force."""
    vault = Vault(tmp_path, OWNER)
    put(vault, Mark(1, 1), "one", since=0)
    with monkeypatch.context() as patch:
        break_after(patch, 3, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(DiskFull, match="ran full"):
            put(vault, Mark(2, 1), "two", since=1)
    assert {1: "one"} == read(vault)
    vault.close()


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (Owner("run-2", "abc", "hospital-a"), "belongs to run 'run-1'"),
        (Owner("run-1", "abd", "hospital-a"), "belongs to spec 'abc'"),
        (Owner("run-1", "abc", "hospital-b"), "belongs to site 'hospital-a'"),
    ],
)
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, owner: Owner, words: str) -> None:
    """State of another run, specification or site is not mixed in, and the lock is given back."""
    vault = Vault(tmp_path, OWNER)
    put(vault, Mark(1, 1), "one", since=0)
    vault.close()
    with pytest.raises(StateError, match=words):
        Vault(tmp_path, owner)
    Vault(tmp_path, OWNER).close()


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    """A pointer that cannot be read, or names a file that is gone, is an error and not a new start."""
    vault = Vault(tmp_path, OWNER)
    put(vault, Mark(1, 1), "one", since=0)
    generation = vault.at(1)
    vault.close()
    generation.rename(tmp_path / "aside")
    with pytest.raises(StateError, match="round 1"):
        Vault(tmp_path, OWNER)
    (tmp_path / "vault.json").write_text(json.dumps({"owner": {}}))
    with pytest.raises(StateError, match="cannot be read"):
        Vault(tmp_path, OWNER)


def test_two_daemons_cannot_use_one_folder(tmp_path: Path) -> None:
    """The second is told so, and may have it when the first is gone."""
    vault = Vault(tmp_path, OWNER)
    with pytest.raises(StateError, match="in use by another pfl-client"):
        Vault(tmp_path, OWNER)
    vault.close()
    Vault(tmp_path, OWNER).close()


def test_a_state_of_nothing_is_not_worth_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps nothing of its own loses nothing in a power cut; the same site with one number waits for the disk."""
    synced: list[str] = []
    monkeypatch.setattr(atomic, "_sync", lambda path, flags: synced.append(path.name))
    vault = Vault(tmp_path / "vault", OWNER)
    synced.clear()
    save_file({}, vault.draft)
    vault.commit(Mark(1, 1), vault.draft, "000001-1-train", since=0)
    assert [] == synced
    assert (Mark(1, 1),) == vault.marks()
    save_file({"bias": torch.zeros(1)}, vault.draft)
    vault.commit(Mark(2, 1), vault.draft, "000002-1-train", since=1)
    assert 3 <= len(synced)
    vault.close()
