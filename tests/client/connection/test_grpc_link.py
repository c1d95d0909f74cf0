"""A coordinator that was started anew at another address is found again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pfl_client.connection import grpc_link
from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import Traffic, Unreachable
from pfl_common.app.called_off import Waiting
from pfl_common.identity import IdentityError
from pfl_common.spec.messages import Over
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from tests.common.sealing.members import Members

SITE = "hospital_a"
FINISHED = Over("finished")


@dataclass
class Channel:
    """What a line is dialled over."""

    address: str
    closed: int = 0

    async def close(self, grace: float | None) -> None:
        self.closed += 1


@dataclass
class Dialled:
    """A line to one address; where nobody is any more every call fails, or hangs."""

    town: Town
    channel: Channel
    address: str
    traffic: Traffic = field(default_factory=Traffic)
    tell: Callable[..., None] | None = None
    signer: None = None
    hangs: asyncio.Event | None = None
    calls: Waiting = field(default_factory=Waiting)
    asked: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    async def ask(
        self, call: str, request: Message, answer: type[Message], *, seconds: float, listed: int = 0
    ) -> Message:
        self.asked.append(call.rpartition("/")[2])
        if isinstance(request, pb.NextTaskRequest):
            self.waits.append(request.wait_seconds)
        if self.hangs is not None:
            self.hangs.set()
            await asyncio.Event().wait()
        if self.address != self.town.here:
            raise Unreachable("nobody there")
        return self.town.renew() if isinstance(request, pb.RenewRequest) else convert.say_work(FINISHED)


@dataclass
class Town:
    """Where the coordinator is, and the lines that were dialled."""

    members: Members
    here: str | None = None
    lines: dict[str, Dialled] = field(default_factory=dict)
    channels: list[Channel] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        self.keyring = self.members.keyring(SITE, days_ago=25)

    def open_channel(self, address: str, credentials: object) -> Channel:
        self.channels.append(Channel(address))
        return self.channels[-1]

    def line(self, channel: Channel, address: str, *_: object) -> Dialled:
        self.lines[address] = Dialled(self, channel, address)
        return self.lines[address]

    def look(self) -> str | None:
        self.looks += 1
        return self.here

    def renew(self) -> pb.RenewAnswer:
        authority, now, csr = self.members.authority, self.members.now, self.keyring.csr(SITE)
        asked = self.keyring.card_request(SITE, authority.federation_id)
        card = authority.sign_card(asked, csr, name=SITE, now=now)
        return pb.RenewAnswer(certificate_pem=authority.sign_site(csr, SITE, now=now), card=card)

    def link(self, address: str, *, roots: bytes | None = None) -> GrpcLink:
        link = GrpcLink(address, self.keyring, roots=roots, clock=lambda: self.members.now)
        return link.following(self.look)

    @property
    def closed(self) -> list[tuple[str, int]]:
        return [(channel.address, channel.closed) for channel in self.channels]


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    town = Town(Members(tmp_path / "federation"))
    monkeypatch.setattr(grpc_link, "open_channel", town.open_channel)
    monkeypatch.setattr(grpc_link, "Line", town.line)
    return town


async def test_the_same_call_at_the_new_address(town: Town) -> None:
    """It is asked at once where the coordinator is now; the old line is closed."""
    town.here = "new"
    link = town.link("old")
    assert FINISHED == await link.next_task(())
    assert FINISHED == await link.next_task(())
    assert (1, [("old", 1), ("new", 0)]) == (town.looks, town.closed)
    assert await link.renew()
    assert [("old", 1), ("new", 1), ("new", 0)] == town.closed
    assert ["NextTask"] == town.lines["old"].asked
    assert ["NextTask", "NextTask", "Renew"] == town.lines["new"].asked
    await link.close()
    assert [("old", 1), ("new", 1), ("new", 1)] == town.closed


async def test_a_new_line_goes_on_counting_and_telling(town: Town) -> None:
    """And its transfers go over it: all that hung on the old line hangs on the new one."""
    town.here, traffic, told = "new", Traffic(), list[object]()
    link = town.link("old").counting(traffic).telling(lambda *words: told.append(words))
    before = link.carrier
    tell = town.lines["old"].tell
    await link.next_task(())
    new = town.lines["new"]
    assert (traffic, tell) == (new.traffic, new.tell)
    assert (new, True) == (link.carrier._line, link.carrier is not before)


@pytest.mark.parametrize("here", [None, "old"])
async def test_nowhere_else(town: Town, here: str | None) -> None:
    """Where it was is where it will be again; and it is not looked for in every moment."""
    looked = list[str]()
    link = town.link("old").following(lambda: looked.append("") or here)  # type: ignore[func-returns-value]
    for _ in range(3):
        with pytest.raises(Unreachable, match="nobody there"):
            await link.next_task(())
    assert (1, ["old"]) == (len(looked), list(town.lines))


async def test_a_site_with_an_invitation_stays(town: Town) -> None:
    """Without a way to look a call that comes to nothing is that and no more."""
    link = GrpcLink("old", town.keyring, clock=lambda: town.members.now)
    town.here = "new"
    with pytest.raises(Unreachable, match="nobody there"):
        await link.next_task(())
    assert ["old"] == list(town.lines)


async def test_a_goodbye_is_not_carried_after_it(town: Town) -> None:
    """A coordinator that has gone hears no goodbye: the site does not wait to find it again."""
    town.here = "new"
    link = town.link("old")
    for bid in (link.leave, link.pause):
        with pytest.raises(Unreachable, match="nobody there"):
            await bid()
    assert 0 == town.looks


async def test_a_call_that_hangs_at_the_old_address(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for: as soon as another call has found the new address it is asked there too."""
    monkeypatch.setattr(grpc_link, "LOOK_SECONDS", 0.0)
    town.here = "new"
    link = town.link("old")
    old, hanging = town.lines["old"], asyncio.Event()
    old.hangs = hanging
    waiting = asyncio.create_task(link.next_task(()))
    await asyncio.wait_for(hanging.wait(), 10)
    old.hangs = None
    assert FINISHED == await link.next_task(())
    assert FINISHED == await asyncio.wait_for(waiting, 10)


async def test_a_certificate_that_has_ended_meanwhile(town: Town) -> None:
    """It is said instead of dialling with it."""
    town.here = "new"
    link = town.link("old")
    town.members.now += timedelta(days=10)
    with pytest.raises(IdentityError, match="expired"):
        await link.next_task(())
    assert ["old"] == list(town.lines)


@pytest.mark.parametrize("proxied", [False, True])
async def test_a_call_for_work_waits_for_minutes_where_no_proxy_cuts_it(town: Town, proxied: bool) -> None:
    """Each question costs the coordinator a millisecond, however many sites only wait; a proxy that ends TLS is given
    less than its minute.
    """
    town.here = "new"
    link = town.link("new", roots=town.members.authority.ca_pem if proxied else None)
    await link.next_task(())
    assert [25.0 if proxied else 120.0] == town.lines["new"].waits
    await link.close()
