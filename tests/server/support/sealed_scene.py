"""A coordinator whose sites seal what they send, with parcels of three frames and a pattern to look for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from torch import nn

from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.models import Backbone, catalogue
from pfl_common.sealing import FRAME, TAG
from pfl_common.spec.messages import Offer, Receipt
from pfl_common.spec.run import RunSpec, Task
from pfl_common.tensors.state import State
from pfl_server.envelopes.sealed import seal_with
from tests.common.sealing.members import PATTERN, Members, find_bytes, offer_of
from tests.server.support import federation
from tests.server.support.federation import build_header, build_spec, make_update, write_parcel
from tests.server.support.scene import TASK, Scene

FEATURES = 150_000
SEALED_FRAME = FRAME + TAG


def build_wide(shape: tuple[int, ...], classes: int) -> Backbone:
    """Three frames of numbers."""
    return Backbone(
        encoder=nn.Sequential(nn.Flatten(), nn.Linear(2, FEATURES)),
        head=nn.Linear(FEATURES, classes),
        features=FEATURES,
    )


class SealedScene(Scene):
    """A coordinator whose sites seal what they send."""

    def __init__(self, folder: Path, spec: RunSpec, members: Members) -> None:
        self.members = members
        (folder / "run").mkdir()
        self.mail = folder / "mail"
        self.mail.mkdir()
        super().__init__(folder / "run", spec)

    def offer(
        self,
        site: str = "a",
        *,
        task: Task = TASK,
        words: str = "",
        keys: EnvelopeKeys | None = None,
        **changes: object,
    ) -> tuple[Offer, bytes]:
        """A site's update with the pattern in it, sealed for this coordinator under its header, with these changes."""
        plain = self.mail / f"plain-{site}"
        groups = write_parcel(plain, self.spec, mark(make_update(self.spec, site, words)))
        header = replace(build_header(self.spec, site, task, groups), **changes)
        return offer_of(
            keys or self.members.keyring(site).envelope_keys(),
            plain.read_bytes(),
            header=header,
            task=task,
            to=self.members.coordinator,
            file=self.mail / f"sealed-{site}",
        )

    async def hand_in(self, site: str = "a", task: Task = TASK) -> Receipt:
        """An honest site's update, from task to receipt."""
        return await self.send(site, *self.offer(site, task=task))

    def untouched(self) -> bool:
        """Nothing was taken: no update in the spool, no receipt in the journal, no plaintext anywhere."""
        return not (self.spooled() or self.books.journal.receipts(1, 1) or self.leaks())

    def spooled(self) -> list[str]:
        """The updates there are."""
        return sorted(path.name for path in (self.folder / "spool").glob("*.raw"))

    def leaks(self) -> list[str]:
        """Files of the coordinator that hold something of an update's plaintext."""
        return find_bytes(self.folder, PATTERN)


def mark(update: State) -> State:
    """The update with the pattern at every sixteenth byte of its largest tensor."""
    name = max(update, key=lambda entry: update[entry].numel())
    numbers = torch.frombuffer(bytearray(PATTERN), dtype=torch.float32)
    count = update[name].numel()
    marked = numbers.repeat(-(-count // 4))[:count].reshape(update[name].shape)
    return update | {name: marked}


@asynccontextmanager
async def open_scene(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SealedScene]:
    """A sealed run of parcels of three frames, with three sites that have enrolled."""
    members = Members(folder / "federation")
    for site in federation.SITES:
        members.keyring(site)
    monkeypatch.setitem(catalogue._BACKBONES, "tiny", build_wide)
    monkeypatch.setattr(
        federation, "OpenEnvelopes", lambda: seal_with(members.authority, now=datetime.now(UTC))
    )
    scene = SealedScene(folder, build_spec(lease_seconds=15.0), members)
    yield scene
    await scene.close()


def cut_frames(raw: bytes, order: tuple[int, ...]) -> bytes:
    """The sealed frames in another order."""
    frames = [raw[at : at + SEALED_FRAME] for at in range(0, len(raw), SEALED_FRAME)]
    assert 3 == len(frames)
    return b"".join(frames[index] for index in order)


def flipped(at: float) -> Callable[[bytes], bytes]:
    """One bit at this part of the bytes is another."""

    def flip(raw: bytes) -> bytes:
        spoilt = bytearray(raw)
        spoilt[min(len(raw) - 1, int(at * len(raw)))] ^= 0x10
        return bytes(spoilt)

    return flip
