"""Two generations with hashes: the newest whole one of a committed round is found, whatever happened."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pfl_common.errors import StateError
from pfl_common.files.recycler import WORTH
from pfl_common.spec.manifest import Entry
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.store import checkpoints as store
from pfl_server.store.checkpoints import Checkpoints
from pfl_server.store.spool import Spool
from tests.server.support.federation import build_header, build_offer, pin_spec, write_parcel

SPEC = pin_spec((Entry("show.w", "float32", (2,)),))


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", SPEC, OpenEnvelopes())


@pytest.fixture
def checkpoints(tmp_path: Path, spool: Spool) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", spool)


def state(number: int) -> State:
    return State({"w": torch.full((3,), float(number))})


def keep(spool: Spool, folder: Path, site: str, number: int) -> str:
    file, task = folder / "up", Task(Kind.TRAIN, number, 9)
    write_parcel(file, SPEC, State({"show.w": torch.full((2,), float(number))}))
    return spool.admit(site, file, build_offer(build_header(SPEC, site, task), file))


def test_nothing_yet(checkpoints: Checkpoints) -> None:
    """Before the first round there is nothing to load."""
    assert None is checkpoints.load(upto=0)


def test_two_generations_are_kept(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """The newest comes first; older ones are gone, drafts too."""
    for number in (1, 2, 3):
        checkpoints.save(number, state(number))
    assert [3, 2] == [c.round for c in checkpoints.generations()]
    assert 4 == len(list((tmp_path / "checkpoints").iterdir()))
    number, loaded = checkpoints.load(upto=3)
    assert (3, [3.0, 3.0, 3.0]) == (number, loaded["w"].tolist())


def test_what_was_sent_lies_beside_the_state(checkpoints: Checkpoints) -> None:
    """Under the same hash, and in no state that is read; a run without it reads nothing."""
    plain = checkpoints.save(1, state(1)).digest
    both = checkpoints.save(2, state(1), sent=State({"w": torch.zeros(3)})).digest
    assert plain != both != checkpoints.save(3, state(1), sent=State({"w": torch.ones(3)})).digest
    assert ({"w"}, [1.0, 1.0, 1.0]) == (set(checkpoints.read(2)), checkpoints.read(2)["w"].tolist())
    assert {"w": [0.0, 0.0, 0.0]} == {n: v.tolist() for n, v in checkpoints.read_sent(2).items()}
    assert checkpoints.save(4, state(1)).digest == plain
    assert {} == dict(checkpoints.read_sent(4))


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "note", "note_remove"])
def test_damage_of_the_newest_falls_back(tmp_path: Path, checkpoints: Checkpoints, damage: str) -> None:
    """A flipped byte, a short file, a lost file, a lost or unreadable note: the one before it is loaded."""
    for number in (1, 2, 3):
        checkpoints.save(number, state(number))
    file = tmp_path / "checkpoints" / "round-000003.safetensors"
    match damage:
        case "flip":
            raw = bytearray(file.read_bytes())
            raw[-1] ^= 1
            file.write_bytes(raw)
        case "cut":
            file.write_bytes(file.read_bytes()[:-4])
        case "remove":
            file.unlink()
        case "note":
            file.with_suffix(".json").write_text('{"round": 3')
        case "note_remove":
            file.with_suffix(".json").unlink()
    number, loaded = checkpoints.load(upto=3)
    assert (2, 2.0) == (number, float(loaded["w"][0]))


def test_notes_of_either_hash_are_read(tmp_path: Path, spool: Spool) -> None:
    """A run says by which its files are known; each note says it for itself."""
    for number, by in ((1, "sha256"), (2, "blake3")):
        saved = Checkpoints(tmp_path / "checkpoints", spool, by=by).save(number, state(number))
        note = json.loads((tmp_path / "checkpoints" / f"round-00000{number}.json").read_text())
        assert (by, saved.digest) == (saved.by, note[by])
    checkpoints = Checkpoints(tmp_path / "checkpoints", spool)
    assert ["blake3", "sha256"] == [found.by for found in checkpoints.generations()]
    assert [1, 2] == [checkpoints.load(upto=number)[0] for number in (1, 2)]


def large(number: int) -> State:
    """A state whose file is worth being kept to be written over."""
    return State({"w": torch.full((WORTH // 4 + number,), float(number))})


def test_a_generation_is_written_over_an_older_one(
    tmp_path: Path, spool: Spool, checkpoints: Checkpoints
) -> None:
    """The very same file, a longer one cut; its neighbours are what they were."""
    folder = tmp_path / "checkpoints"
    numbers: dict[int, int] = {}
    for number in (9, 8, 10, 11):
        checkpoints.save(number, large(number))
        numbers[number] = (folder / f"round-{number:06d}.safetensors").stat().st_ino
    assert numbers[11] == numbers[8]
    found = {number: checkpoints.load(upto=number) for number in (10, 11)}
    assert {10: 10, 11: 11} == {number: state[0] for number, state in found.items() if state}
    for number, loaded in found.items():
        assert loaded is not None
        assert torch.equal(large(number)["w"], loaded[1]["w"])


def test_what_a_state_looks_into_is_not_written_over(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """Neither by a view of a part of it; once nobody looks, it may be."""
    folder = tmp_path / "checkpoints"
    checkpoints.save(1, large(1))
    part = checkpoints.read(1)["w"][5:9]
    kept = checkpoints.read(1)
    del kept
    for number in (2, 3, 4):
        checkpoints.save(number, large(number))
    assert [1.0] * 4 == part.tolist()
    number = (folder / "round-000003.safetensors").stat().st_ino
    checkpoints.save(5, large(5))
    checkpoints.save(6, large(6))
    assert number == (folder / "round-000006.safetensors").stat().st_ino


def test_damage_of_both_is_an_error(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """Nothing can be made again from nothing: the operator is told what to do."""
    for number in (1, 2, 3):
        checkpoints.save(number, state(number))
    for file in (tmp_path / "checkpoints").glob("*.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(StateError, match="--new-run"):
        checkpoints.load(upto=3)


def test_damage_in_the_first_rounds_begins_anew(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """The first state follows from the specification: the first two rounds can be made again."""
    checkpoints.save(1, state(1))
    (tmp_path / "checkpoints" / "round-000001.safetensors").write_bytes(b"")
    assert None is checkpoints.load(upto=1)


def test_a_round_the_journal_does_not_know(checkpoints: Checkpoints) -> None:
    """Killed between checkpoint and commit: the round is still open, its checkpoint is not loaded."""
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2))
    number, loaded = checkpoints.load(upto=1)
    assert (1, 1.0) == (number, float(loaded["w"][0]))


def test_every_kind_of_tensor_comes_back(checkpoints: Checkpoints) -> None:
    """No dimensions, no length, integers, bytes, halves, a view with gaps: all come back as they were."""
    saved = State(
        {
            "scalar": torch.tensor(2.5),
            "empty": torch.zeros(0, 4),
            "count": torch.tensor([1 << 40, -3]),
            "bytes": torch.arange(5, dtype=torch.uint8),
            "mask": torch.tensor([True, False]),
            "half": torch.ones(2, dtype=torch.bfloat16),
            "double": torch.tensor(1 / 3, dtype=torch.float64),
            "gaps": torch.arange(6.0).reshape(2, 3).T,
        }
    )
    checkpoints.save(1, saved)
    _, loaded = checkpoints.load(upto=1)
    assert saved.keys() == loaded.keys()
    for name, value in saved.items():
        assert (value.dtype, value.shape) == (loaded[name].dtype, loaded[name].shape), name
        assert torch.equal(value, loaded[name]), name


def test_one_tensor_under_two_names(checkpoints: Checkpoints) -> None:
    """A state may hold the same values twice, as when a method remembers what it began with."""
    value = torch.arange(3.0)
    checkpoints.save(1, State({"w": value, "before": value}))
    _, loaded = checkpoints.load(upto=1)
    assert [0.0, 1.0, 2.0] == loaded["before"].tolist() == loaded["w"].tolist()


def test_an_empty_state(checkpoints: Checkpoints) -> None:
    """A method that shares nothing still has checkpoints."""
    checkpoints.save(1, State())
    number, loaded = checkpoints.load(upto=1)
    assert (1, 0) == (number, len(loaded))


def test_updates_are_kept_by_reference(tmp_path: Path, spool: Spool, checkpoints: Checkpoints) -> None:
    """A state that keeps an update names it; it is read from the spool only when asked for."""
    name = keep(spool, tmp_path, "a", 1)
    checkpoints.save(1, State({"w": torch.ones(1)}, kept={"peer": spool.open(name)}))
    assert [frozenset({name})] == [c.kept for c in checkpoints.generations()]
    _, loaded = checkpoints.load(upto=1)
    assert (name, [1.0, 1.0]) == (loaded.kept["peer"].id, loaded.kept["peer"].load()["w"].tolist())


def test_a_generation_whose_update_is_gone_is_not_whole(
    tmp_path: Path, spool: Spool, checkpoints: Checkpoints
) -> None:
    """What it refers to belongs to it."""
    names = [keep(spool, tmp_path, "a", number) for number in (1, 2)]
    for number, name in enumerate(names, start=1):
        checkpoints.save(number, State({"w": torch.ones(1)}, kept={"peer": spool.open(name)}))
    spool.sweep(names[:1])
    number, _ = checkpoints.load(upto=2)
    assert 1 == number


def test_a_generation_whose_update_is_torn_is_not_whole(
    tmp_path: Path, spool: Spool, checkpoints: Checkpoints
) -> None:
    """An update that is there but not as it came is as good as gone."""
    names = [keep(spool, tmp_path, "a", number) for number in (1, 2)]
    for number, name in enumerate(names, start=1):
        checkpoints.save(number, State({"w": torch.ones(1)}, kept={"peer": spool.open(name)}))
    spool.open(names[1]).path.write_bytes(b"torn")
    number, _ = checkpoints.load(upto=2)
    assert 1 == number


def test_what_a_checkpoint_refers_to_lasts(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can be asked for a kept update again: it is on disk before the checkpoint that names it; else not."""
    synced: list[list[str]] = []
    monkeypatch.setattr(spool, "sync", lambda names: synced.append(list(names)))
    name = keep(spool, tmp_path, "a", 1)
    for lasting in (False, True):
        checkpoints = Checkpoints(tmp_path / f"checkpoints-{lasting}", spool, lasting=lasting)
        checkpoints.save(1, State({"w": torch.ones(1)}, kept={"peer": spool.open(name)}))
    assert [[name]] == synced


def test_a_save_that_fails_leaves_the_last_one(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while writing, before a file or its note has its name."""
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2))
    replace, calls = os.replace, 0
    for last in (1, 2):

        def fail(draft: Path, file: Path, last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls == last:
                raise OSError("killed")
            replace(draft, file)

        calls = 0
        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="killed"):
            checkpoints.save(3, state(3))
        number, loaded = checkpoints.load(upto=2)
        assert (2, 2.0) == (number, float(loaded["w"][0]))


def test_the_bytes_follow_from_the_state_alone(tmp_path: Path, spool: Spool) -> None:
    """Neither the order of names nor where a tensor lies in memory shows; the digest is that of the file."""
    long, odd = torch.arange(300_000.0), torch.tensor([1, 2, 3], dtype=torch.uint8)
    folders = [Checkpoints(tmp_path / name, spool) for name in ("one", "other")]
    one = folders[0].save(1, State({"long": long, "odd": odd, "few": long[:3]}))
    other = folders[1].save(1, State({"few": long[:3].clone(), "odd": odd, "long": long.flip(0).flip(0)}))
    files = [folder.folder / "round-000001.safetensors" for folder in folders]
    assert one.digest == other.digest == hashlib.sha256(files[0].read_bytes()).hexdigest()
    assert files[0].read_bytes() == files[1].read_bytes()
    assert torch.equal(long, load_file(files[0])["long"])


def test_a_state_that_was_read_outlives_its_file(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """It looks into its file even when that has been let go, and what is written to it stays out of any file."""
    digest = checkpoints.save(1, state(1)).digest
    first = checkpoints.read(1)
    first["w"][0] = 7.0
    assert digest == checkpoints.generations()[0].digest
    assert [1.0, 1.0, 1.0] == checkpoints.read(1)["w"].tolist()
    for number in (2, 3):
        checkpoints.save(number, state(number))
    assert not (tmp_path / "checkpoints" / "round-000001.safetensors").exists()
    assert [7.0, 1.0, 1.0] == first["w"].tolist()


@pytest.mark.parametrize(("lasting", "synced"), [(True, 3), (False, 0)])
def test_the_disk_is_waited_for_only_when_asked(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch, lasting: bool, synced: int
) -> None:
    """File and note, each with its folder; a run that need not survive a power cut does not wait."""
    waits: list[int] = []
    monkeypatch.setattr(os, "fsync", waits.append)
    Checkpoints(tmp_path / "checkpoints", spool, lasting=lasting).save(1, state(1))
    assert synced == len(waits)


@pytest.mark.parametrize("long", [True, False], ids=["long", "short"])
def test_the_digest_is_told(
    tmp_path: Path, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, *, long: bool
) -> None:
    """It is that of the file; of a long state it is known before that is written."""
    monkeypatch.setattr(store, "LONG", 0 if long else 1 << 20)
    told: list[tuple[str, bool]] = []
    draft = tmp_path / "checkpoints" / "round-000001.tmp"
    checkpoints.save(1, state(1), lambda digest: told.append((digest, draft.exists())))
    file = tmp_path / "checkpoints" / "round-000001.safetensors"
    assert [(hashlib.sha256(file.read_bytes()).hexdigest(), not long)] == told
