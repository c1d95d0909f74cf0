"""An upload that is checked while it comes: what is good is not read again, what is not is refused as ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from pfl_common.tensors.state import State
from pfl_server.envelopes.sealed import SealedLetter
from pfl_server.store import spool
from tests.server.support import sealed_scene
from tests.server.support.scene import refusal
from tests.server.support.sealed_scene import SEALED_FRAME, SealedScene, cut_frames, open_scene


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SealedScene]:
    async with open_scene(tmp_path, monkeypatch) as one:
        one.books.compare_with(one.books.first)
        yield one


def unread(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The uploads whose files are read to be checked, from now on."""
    read, reading = [], SealedLetter.reading

    def watched(letter: SealedLetter, file: Path) -> object:
        read.append(file)
        return reading(letter, file)

    monkeypatch.setattr(SealedLetter, "reading", watched)
    return read


async def test_what_was_checked_as_it_came_is_not_read_again(
    scene: SealedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts, and how far it went is what reading all of it gives."""
    read, asked = unread(monkeypatch), scene.ask()
    await scene.take()
    await scene.hand_in()
    name, kept = await asked, scene.books.spool
    change = kept.change_of(name)
    kept.let_letters_go()
    assert ([], True) == (read, change > 0)
    assert pytest.approx(change, rel=1e-6) == kept.change_of(name)


@pytest.mark.parametrize("how", ["resumed", "large", "many"])
async def test_otherwise_it_is_read_when_it_is_there(
    scene: SealedScene, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """One of which a part was here before, one of another size than is quickly checked, one too many at a time."""
    read, asked = unread(monkeypatch), scene.ask()
    await scene.take()
    offer, raw = scene.offer()
    if how == "resumed":
        (await scene.fleet.offer("a", offer)).path.write_bytes(raw[:SEALED_FRAME])
    limits = {"large": ("QUICK", 0), "many": ("WATCHED", 0)}
    if how in limits:
        monkeypatch.setattr(spool, *limits[how])
    await scene.send("a", offer, raw)
    assert 1 == len(read)
    assert await asked


def spoil(how: str) -> object:
    """An update that is not taken: how its numbers are changed before it is sealed, if that is what is wrong."""

    def changed(update: State) -> State:
        name = max(update, key=lambda entry: update[entry].numel())
        if how == "NaN":
            update[name].view(-1)[-1] = float("nan")
        if how == "weight":
            weight = next(entry for entry in update if entry.startswith("weight."))
            return update | {weight: torch.tensor(-1)}
        return update

    return changed


@pytest.mark.parametrize("shown", [True, False], ids=["as it comes", "read"])
@pytest.mark.parametrize(
    ("how", "code"), [("NaN", "not_finite"), ("weight", "weight"), ("flip", "seal"), ("swap", "seal")]
)
async def test_what_is_wrong_is_refused_alike(
    scene: SealedScene, monkeypatch: pytest.MonkeyPatch, how: str, code: str, shown: bool
) -> None:
    """By the same code and counted, whether it was found as it came or when it was read."""
    monkeypatch.setattr(spool, "WATCHED", 8 * shown)
    mark = sealed_scene.mark
    monkeypatch.setattr(sealed_scene, "mark", lambda update: spoil(how)(mark(update)))
    scene.ask()
    await scene.take()
    offer, raw = scene.offer()
    raw = {"flip": raw[:9] + bytes([raw[9] ^ 1]) + raw[10:], "swap": cut_frames(raw, (1, 0, 2))}.get(how, raw)
    assert code == await refusal(lambda: scene.send("a", offer, raw))
    assert ({code: 1}, []) == (scene.fleet.tasks.refusals, scene.spooled())
