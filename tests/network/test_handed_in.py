"""A small task is handed in with one call: update, evaluation, question; repeated, cut short or wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import HandedIn, Unreachable
from pfl_common.errors import Refused
from pfl_common.spec.messages import Mark, Over
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire.carrying import say_hand_in
from pfl_common.wire.convert import BESIDE_BYTES
from pfl_server.network import server as port
from tests.network.federation import Federation
from tests.network.file_desk import train, upload

SITE, UPDATE = "hospital_a", b"an update"
KEY = upload(SITE, UPDATE).key
SCORES = {"pre/test/combined": [3.0, 4.0, 0.75, 0.5625, 0.5]}
MARKS = (Mark(1, 1),)


def list_all(also: Callable[[], None]) -> None:
    """A site that lists what it is told to."""
    also()


async def begin(federation: Federation, link: GrpcLink) -> None:
    """The site has a task."""
    federation.desk.assign(SITE, train(federation.desk.lay(b"model")))
    await link.next_task(())


async def hand_in(link: GrpcLink, folder: Path, content: bytes = UPDATE) -> HandedIn | None:
    """Its update and its evaluation."""
    (folder / "up").write_bytes(content)
    offer = upload(SITE, content)
    return await link.hand_in(offer, folder / "up", SCORES, marks=(MARKS, ()), announce=list_all)


async def test_one_call_brings_the_receipt_and_the_next_task(federation: Federation, tmp_path: Path) -> None:
    """Its bytes come with it; both ends count the same; the evaluation is listed before anything is sent."""
    desk, listed = federation.desk, []
    async with federation.link(SITE) as link:
        await begin(federation, link)
        link.telling(lambda call, body, size, fields: listed.append((call, size)))
        following = train(desk.lay(b"next model"), round=2)
        desk.assign(SITE, following)
        handed = await hand_in(link, tmp_path)
        assert handed is not None
        await link.fetch(following.blob, tmp_path / "model", kind="train")
        theirs = {place: count for place, count in federation.server.meter.bytes.items() if count}
        assert theirs == {place: count for place, count in link._line.traffic.crossed().items() if count}
    assert (KEY, following) == (handed.receipt.key, handed.next)
    assert (UPDATE, b"next model") == (desk.kept(SITE, KEY), (tmp_path / "model").read_bytes())
    assert [(0, len(UPDATE))] == desk.shown, "it is checked from what came, not from its file"
    assert [("report", SITE, KEY, SCORES)] == desk.said
    assert MARKS == desk.marks[SITE]
    assert ["Report", "HandIn"] == [call for call, _ in listed]
    assert 0 < listed[1][1] < 1000, "neither the update nor the evaluation is counted as the call"


async def test_an_update_that_is_here_gets_its_receipt_again(federation: Federation, tmp_path: Path) -> None:
    """Its answer was lost: nothing is verified twice, and the evaluation that comes too late is no reason to refuse."""
    desk = federation.desk

    async def settled(*_: object, **__: object) -> None:
        raise Refused("late", "its task is over")

    async with federation.link(SITE) as link:
        await begin(federation, link)
        desk.assign(SITE, Over("finished"))
        first = await hand_in(link, tmp_path)
        desk.report = settled
        desk.assign(SITE, Over("finished"))
        again = await hand_in(link, tmp_path)
    assert first is not None
    assert again is not None
    assert (first.receipt, 1) == (again.receipt, desk.verified)


async def test_the_receipt_does_not_wait_long_for_the_next_task(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is not there soon is asked for with a call of its own."""
    monkeypatch.setattr(port, "LONGEST_HOLD_SECONDS", 0.05)
    async with federation.link(SITE) as link:
        await begin(federation, link)
        handed = await hand_in(link, tmp_path)
    assert handed is not None
    assert (KEY, None) == (handed.receipt.key, handed.next)
    assert 0.04 < handed.held_seconds < 0.9, "the site would wait for a second"


async def test_a_question_that_is_refused_costs_no_receipt(federation: Federation, tmp_path: Path) -> None:
    """The site hears it when it asks again."""

    async def refuse(*_: object, **__: object) -> None:
        raise Refused("not_joined", "join first")

    async with federation.link(SITE) as link:
        await begin(federation, link)
        federation.desk.next_task = refuse
        handed = await hand_in(link, tmp_path)
    assert handed is not None
    assert (KEY, None) == (handed.receipt.key, handed.next)


async def test_a_coordinator_that_does_not_say_so_is_not_asked(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of an older release: nothing is sent, single calls follow. So it is with an update that is too large."""
    async with federation.link(SITE) as link:
        await begin(federation, link)
        assert await hand_in(link, tmp_path, bytes(BESIDE_BYTES + 1)) is None
        monkeypatch.setattr(link, "_takes_all_at_once", False)
        assert await hand_in(link, tmp_path) is None
    assert ([], 0) == (federation.desk.said, federation.desk.verified)


async def test_after_a_call_without_answer_single_calls_follow(
    federation: Federation, tmp_path: Path
) -> None:
    """The line may be too slow for it."""
    async with federation.link(SITE) as link:
        await begin(federation, link)
        federation.desk.stored = lambda *_: {}["a fault"]
        with pytest.raises(Unreachable):
            await hand_in(link, tmp_path)
        assert await hand_in(link, tmp_path) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda said: setattr(said.report, "key", "000009-1-train"), "bad_request"),
        (lambda said: said.offer.ClearField("content"), "bad_request"),
        (lambda said: setattr(said.offer, "content", bytes(BESIDE_BYTES + 1)), "too_large"),
        (lambda said: setattr(said.offer, "content", UPDATE[:-1]), "too_short"),
        (lambda said: setattr(said.offer, "content", bytes(len(UPDATE))), "digest"),
        (lambda said: setattr(said.offer.header, "sender", "hospital_b"), "header"),
    ],
    ids=["another task's report", "no bytes", "too many", "too few", "other bytes", "another site's"],
)
async def test_what_is_wrong_is_refused(
    federation: Federation, change: Callable[[pb.HandInRequest], None], code: str
) -> None:
    """By the rules of the single calls; there is no receipt."""
    question = convert.say_marks(MARKS, wait_seconds=0.0)
    said = say_hand_in(upload(SITE, UPDATE), UPDATE, SCORES, question)
    change(said)
    async with federation.link(SITE) as link:
        with pytest.raises(Refused) as refused:
            await link._ask("HandIn", said, pb.HandInAnswer)
    assert code == refused.value.code
    assert {} == federation.desk._receipts
