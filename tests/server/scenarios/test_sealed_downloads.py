"""Sealed downloads at a real coordinator: the same bytes after a restart, for each site alone, never a key twice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from pfl_common import sealing
from pfl_common.errors import Refused
from pfl_common.spec.messages import Assignment, Seal
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State
from pfl_server.sites.downloads import Downloads
from pfl_server.store.round_base import Base
from tests.common.sealing.members import Members
from tests.server.support import federation, troubled_cards
from tests.server.support.scene import TASK, refusal
from tests.server.support.sealed_scene import SEALED_FRAME, SealedScene, flipped, open_scene


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SealedScene]:
    async with open_scene(tmp_path, monkeypatch) as one:
        yield one


class Half:
    """Sends each site numbers of its own, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def send(self, state: State, client: str, task: Task) -> State:
        self.asked += 1
        return State({name: torch.full_like(value, ord(client)) for name, value in state.items()})


@dataclass
class Depot:
    """The downloads of one life of a coordinator, for a method that sends each site its own, or one that does not."""

    scene: SealedScene
    per_client: bool

    def __post_init__(self) -> None:
        books, self.half = self.scene.books, Half()
        method = replace(books.method, per_client=self.per_client)
        of = replace(books, half=self.half, method=method)
        self.downloads = Downloads(of, "state", Base(2, books.first))

    async def fetch(self, site: str, number: int = 3) -> tuple[Assignment, bytes]:
        """What a site gets."""
        task = Task(Kind.TRAIN, number, 9, since=2)
        assignment = await self.downloads.assignment(site, task)
        return assignment, self.scene.fleet.blob(site, assignment.blob.digest).read_bytes()


def open_down(scene: SealedScene, site: str, assignment: Assignment) -> bytes:
    """What a site reads in its download."""
    envelope = sealing.Envelope(
        assignment.header.to_json().encode(),
        assignment.blob.digest,
        assignment.blob.size,
        assignment.seal.wrap,
        assignment.seal.signature,
    )
    vouched = sealing.verify_down(scene.members.coordinator, envelope)
    keys = scene.members.keyring(site).envelope_keys()
    key = sealing.unwrap(envelope.wrap, keys, name=site, header_hash=vouched.binding.hash)
    return bytes(
        sealing.open_to_bytes(scene.fleet.blob(site, assignment.blob.digest), key=key, vouched=vouched)
    )


@pytest.mark.parametrize("per_client", [False, True], ids=["broadcast", "per client"])
async def test_a_restart_serves_the_same_sealed_bytes(scene: SealedScene, per_client: bool) -> None:
    """A site with half of a download goes on with it: the first model, a broadcast, or a site's own parcel."""
    depot, init = Depot(scene, per_client), scene.books.init.blob
    before = {site: await depot.fetch(site) for site in "ab"}
    assert (2 if per_client else 1) == len({raw for _, raw in before.values()}) == depot.half.asked
    await scene.restart()
    assert init == scene.books.init.blob
    depot = Depot(scene, per_client)
    for site, (assignment, raw) in before.items():
        again, same = await depot.fetch(site)
        assert (assignment.header, assignment.blob) == (again.header, again.blob)
        assert raw == same
        assert open_down(scene, site, assignment) == open_down(scene, site, again)


async def test_the_first_model_opens_after_a_restart(scene: SealedScene) -> None:
    """For a site that joined before, and for one that joins after."""
    first = await scene.fleet.join("a", federation.DESCRIPTION)
    await scene.restart()
    second = await scene.fleet.join("b", federation.DESCRIPTION)
    assert (first.init, first.spec) == (second.init, second.spec)
    header = scene.books.init.header
    contents = {
        open_down(scene, site, Assignment(TASK, header, joined.init, joined.seal))
        for site, joined in (("a", first), ("b", second))
    }
    assert 1 == len(contents)


@pytest.mark.parametrize(
    "how", ["cut", "flipped", "gone", "note cut", "note gone", "own wrap", "signature", "size"]
)
async def test_a_torn_parcel_is_made_anew(scene: SealedScene, how: str) -> None:
    """Under a fresh key: never is anything sealed under a key that was used before."""
    depot = Depot(scene, False)
    before, raw = await depot.fetch("a")
    shelf = scene.books.shelf.folder
    note = next(path for path in shelf.glob("note-*.json") if before.blob.digest in path.read_text())
    said = json.loads(note.read_text())
    if how in ("cut", "flipped"):
        (shelf / before.blob.digest).write_bytes(raw[:-1] if how == "cut" else flipped(0.5)(raw))
    elif how == "gone":
        (shelf / before.blob.digest).unlink()
    elif how == "note gone":
        note.unlink()
    elif how == "note cut":
        note.write_text(note.read_text()[:50])
    else:
        change = {"own wrap": {"own": "00" * 80}, "signature": {"signature": "00" * 64}, "size": {"size": 7}}
        note.write_text(json.dumps(said | change[how]))
    await scene.restart()
    after, anew = await Depot(scene, False).fetch("a")
    assert before.blob.digest != after.blob.digest
    assert raw[:SEALED_FRAME] != anew[:SEALED_FRAME]
    assert open_down(scene, "a", after) == bytes(
        open_down(scene, "b", (await Depot(scene, False).fetch("b"))[0])
    )


async def test_what_somebody_else_laid_on_the_shelf_is_not_signed(scene: SealedScene) -> None:
    """Who can write the folder but has no key of the coordinator cannot have a parcel of his own sent out."""
    depot = Depot(scene, False)
    before, _ = await depot.fetch("a")
    shelf = scene.books.shelf.folder
    note = next(path for path in shelf.glob("note-*.json") if before.blob.digest in path.read_text())
    forged = sealing.seal_bytes(bytes(1000), shelf / "forged", before.header.to_json().encode())
    (shelf / "forged").rename(shelf / forged.digest)
    own = sealing.wrap(forged.content_key, scene.members.coordinator, header_hash=forged.binding.hash)
    words = {"digest": forged.digest, "size": forged.size, "own": own.hex()}
    note.write_text(json.dumps(json.loads(note.read_text()) | words))
    await scene.restart()
    after, _ = await Depot(scene, False).fetch("a")
    assert forged.digest != after.blob.digest


@pytest.mark.parametrize(
    "trouble",
    [troubled_cards.no_card, troubled_cards.card_has_ended, troubled_cards.card_of_another_federation],
)
async def test_nothing_is_addressed_to_a_site_without_a_good_card(
    scene: SealedScene, trouble: Callable[[Members], None]
) -> None:
    """Neither the first model nor a task's parcel is wrapped for keys that nobody vouches for."""
    trouble(scene.members)
    with pytest.raises(Refused, match="card"):
        await scene.fleet.join("a", federation.DESCRIPTION)
    scene.ask()
    assert "card" == await refusal(scene.take)
    assert 1 == len({(await Depot(scene, False).fetch(site))[0].blob for site in "bc"})


async def test_a_download_is_addressed_to_each_alone(scene: SealedScene) -> None:
    """One parcel, a wrap and a signature for each site; none of them does for another."""
    depot = Depot(scene, False)
    (first, raw), (second, same) = await depot.fetch("a"), await depot.fetch("b")
    assert (raw, first.blob) == (same, second.blob)
    assert open_down(scene, "a", first) == open_down(scene, "b", second)
    assert 2 == len({first.seal.wrap, second.seal.wrap}) == len({first.seal.signature, second.seal.signature})
    with pytest.raises(sealing.Tampered, match="wrap"):
        open_down(scene, "b", first)
    mixed = replace(first, seal=Seal(second.seal.wrap, first.seal.signature))
    with pytest.raises(sealing.Tampered, match="signature"):
        open_down(scene, "b", mixed)
