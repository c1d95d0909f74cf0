"""Coordinator and site count the same bytes under the same kind, and no number of theirs ever falls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import Traffic
from pfl_common.errors import Refused
from pfl_common.spec.run import Kind
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire.carrying import read_carrying, weigh
from pfl_common.wire.convert import BESIDE_BYTES, CARRYING_BYTES
from pfl_server.telemetry.counters import Meter
from tests.network.federation import Federation
from tests.network.file_desk import train, upload

CONTENT = bytes(100_000)
SITE = "hospital_a"


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is taken off a number: a reader in between would see it fall."""
    seen: list[int] = []
    moved, add = Meter.moved, Traffic._add

    def watch_meter(self: Meter, way: str, freight: str, size: int) -> None:
        seen.append(size)
        moved(self, way, freight, size)

    def watch_traffic(self: Traffic, direction: str, kind: str, count: int) -> None:
        seen.append(count)
        add(self, direction, kind, count)

    monkeypatch.setattr(Meter, "moved", watch_meter)
    monkeypatch.setattr(Traffic, "_add", watch_traffic)
    yield
    assert seen
    assert 0 <= min(seen)


def check_same(federation: Federation, link: GrpcLink) -> dict[tuple[str, ...], int]:
    """What both ends have counted, which is one and the same."""
    theirs = {place: count for place, count in federation.server.meter.bytes.items() if count}
    ours = {place: count for place, count in link._line.traffic.crossed().items() if count}
    assert theirs == ours
    assert max(ours["up", "calls"], ours["down", "calls"]) < 5000
    return ours


@pytest.mark.usefixtures("growing")
@pytest.mark.parametrize("kind", Kind)
async def test_a_task_with_its_parcel(federation: Federation, tmp_path: Path, kind: Kind) -> None:
    """Under the task's own kind."""
    work = train(federation.desk.lay(CONTENT))
    federation.desk.assign(SITE, replace(work, task=replace(work.task, kind=kind)))
    async with federation.link(SITE) as link:
        await link.next_task(())
        await link.fetch(work.blob, tmp_path / "model", kind=kind)
        assert len(CONTENT) == check_same(federation, link)["down", kind]


@pytest.mark.usefixtures("growing")
async def test_an_offer_with_its_parcel(federation: Federation, tmp_path: Path) -> None:
    """In a line's first call it crosses twice, until the coordinator has given a session; and it is never calls."""
    (tmp_path / "up").write_bytes(CONTENT)
    desk, midway = federation.desk, []
    offered, stored = desk.offer, desk.stored

    async def offer(site: str, said: object) -> object:
        midway.append(federation.server.meter.bytes.copy())
        return await offered(site, said)

    async def store(site: str, key: str) -> object:
        midway.append(federation.server.meter.bytes.copy())
        return await stored(site, key)

    desk.offer, desk.stored = offer, store
    async with federation.link(SITE) as link:
        await link.submit(upload(SITE, CONTENT), tmp_path / "up")
        assert 2 * len(CONTENT) == check_same(federation, link)["up", "train"]
    assert [(2 * len(CONTENT), True)] * 2 == [(m["up", "train"], m["up", "calls"] < 5000) for m in midway]


@pytest.mark.usefixtures("growing")
async def test_an_offer_that_is_answered_by_its_receipt(federation: Federation, tmp_path: Path) -> None:
    """The parcel was sent in vain, and as a parcel."""
    (tmp_path / "up").write_bytes(CONTENT)
    async with federation.link(SITE) as link:
        await link.heartbeat("000001-1-train", 1)
        first = await link.submit(upload(SITE, CONTENT), tmp_path / "up")
        assert first == await link.submit(upload(SITE, CONTENT), tmp_path / "up")
        assert 2 * len(CONTENT) == check_same(federation, link)["up", "train"]
    assert 1 == federation.desk.verified


@pytest.mark.usefixtures("growing")
async def test_an_offer_of_what_is_half_there(federation: Federation, tmp_path: Path) -> None:
    """It is not sent from there on, so all of it counts."""
    (tmp_path / "up").write_bytes(CONTENT)
    offer = upload(SITE, CONTENT)
    federation.desk._path(SITE, offer.key).write_bytes(CONTENT[:40_000])
    async with federation.link(SITE) as link:
        await link.heartbeat("000001-1-train", 1)
        await link.submit(offer, tmp_path / "up")
        assert len(CONTENT) == check_same(federation, link)["up", "train"]


@pytest.mark.usefixtures("growing")
@pytest.mark.parametrize("of", [b"1" * len(CONTENT), CONTENT + b"1", CONTENT[1:]])
async def test_an_offer_with_a_parcel_that_is_refused(federation: Federation, of: bytes) -> None:
    """Other bytes, too few, too many: they have crossed."""
    request = convert.say_offer(upload(SITE, of))
    request.content = CONTENT
    async with federation.link(SITE) as link:
        await link.heartbeat("000001-1-train", 1)
        with pytest.raises(Refused, match=r"^(digest|too_)"):
            await link._ask("Offer", request, pb.OfferAnswer)
        assert len(CONTENT) == check_same(federation, link)["up", "train"]


@pytest.mark.usefixtures("growing")
async def test_streams_and_calls(federation: Federation, tmp_path: Path) -> None:
    """Beyond what goes with a call, from the middle on, and a stream that is refused after its last frame."""
    content = bytes(BESIDE_BYTES + 1)
    blob, offer = federation.desk.lay(content), upload(SITE, content)
    (tmp_path / "up").write_bytes(content)
    (tmp_path / "model").write_bytes(content[:1000])
    federation.desk._path(SITE, offer.key).write_bytes(content[:2000])
    federation.desk.assign(SITE, train(blob))
    async with federation.link(SITE) as link:
        await link.next_task(())
        await link.fetch(blob, tmp_path / "model", kind="train")
        await link.submit(offer, tmp_path / "up")
        (tmp_path / "up").write_bytes(b"1" * len(content))
        with pytest.raises(Refused, match=r"^digest"):
            await link.submit(upload(SITE, content, round=2), tmp_path / "up")
        counts = check_same(federation, link)
    assert (len(content) - 1000, 2 * len(content) - 2000) == (counts["down", "train"], counts["up", "train"])


@pytest.mark.usefixtures("growing")
async def test_bytes_that_cannot_be_noted_as_sent_are_not_counted(
    federation: Federation, tmp_path: Path
) -> None:
    """The task goes without them, and they are fetched."""
    desk, noted = federation.desk, []
    work = train(desk.lay(CONTENT))
    desk.assign(SITE, work)

    def note(site: str, digest: str) -> None:
        noted.append(digest)
        if len(noted) == 1:
            raise Refused("unknown_blob", "gone")

    desk.fetched = note
    async with federation.link(SITE) as link:
        await link.next_task(())
        await link.fetch(work.blob, tmp_path / "model", kind="train")
        assert len(CONTENT) == check_same(federation, link)["down", "train"]
    assert 2 * [work.blob.digest] == noted


def test_only_what_can_be_ours_is_taken_apart() -> None:
    """A stranger's bytes are calls, whatever they pretend to be."""
    offer = pb.OfferRequest(key="k", content=bytes(10))
    long = pb.OfferRequest(key="k" * CARRYING_BYTES, content=bytes(10))
    given = pb.NextTaskAnswer(assignment=pb.Assignment(task=pb.Task(kind="KIND_FINISH"), content=bytes(7)))
    of_no_kind = pb.NextTaskAnswer(assignment=pb.Assignment(content=bytes(7)))
    for said, expected in (
        (offer, (Kind.TRAIN, 10)),
        (given, (Kind.FINISH, 7)),
        (long, (Kind.TRAIN, 0)),
        (of_no_kind, (Kind.TRAIN, 0)),
        (pb.NextTaskAnswer(nothing=pb.Done()), (Kind.TRAIN, 0)),
        (pb.HeartbeatRequest(key="k"), (Kind.TRAIN, 0)),
    ):
        body = said.SerializeToString()
        for heard in (said, read_carrying(body, type(said))):
            assert expected == weigh(heard, len(body)), "at both ends"
    assert read_carrying(b"\xff\xff", pb.OfferRequest) is None
