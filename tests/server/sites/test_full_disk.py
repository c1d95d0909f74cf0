"""A disk that is full under a site's call: it is told, its task waits, and it comes again."""

from __future__ import annotations

import errno
import re
import sqlite3

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.messages import Receipt
from pfl_server.sites.full_disk import tells_full_disk
from pfl_server.store.journal_thread import Page
from tests.server.support.scene import Scene, refusal


def limit(scene: Scene, pages: int) -> None:
    """Let the journal's file have so many pages: beyond them SQLite says that the disk is full."""

    def ask(page: Page) -> None:
        page.rows(f"pragma max_page_count = {pages}")

    scene.books.journal.scribe.ask(ask).result()


def fill(scene: Scene) -> None:
    """Fill the journal to its last page with receipts of another run's rounds."""
    limit(scene, 1)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        for number in range(100, 1000):
            receipt = Receipt("run-0", f"{number:06d}-1-train", "c", "0" * 64)
            scene.books.journal.receive(receipt, number, 1, "none")


async def test_a_receipt_waits_for_room_in_the_journal(scene: Scene) -> None:
    """The update verified, its receipt could not be written: none is given, the bytes stay, nobody is lost for it;
    offered again when there is room, the receipt comes without a byte sent twice.
    """
    desk, place = scene.fleet, scene.fleet.notices.room
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    incoming = await desk.offer("a", offer)
    incoming.path.write_bytes(raw)
    fill(scene)
    assert "no_room" == await refusal(lambda: desk.stored("a", offer.key))
    assert place.words.startswith("no room on the disk of")
    assert not asked.done()
    limit(scene, 1 << 20)
    receipt = await desk.offer("a", offer)
    assert (offer.key, offer.blob.digest) == (receipt.key, receipt.digest)
    assert "" == place.words
    assert "000001-1-a" == await asked
    assert raw == scene.books.spool.open(await asked).path.read_bytes()


async def test_a_site_that_is_sent_away_for_want_of_room_is_not_silent(scene: Scene) -> None:
    """Its lease does not end while it is the coordinator that has no room; the operator reads how much is lacking."""
    desk, place = scene.fleet, scene.fleet.notices.room
    scene.ask()
    await scene.take()
    scene.fleet._intake._spare = 1 << 60
    offer, raw = scene.prepare_offer()
    for _ in range(3):
        scene.fleet.clock += 10
        with pytest.raises(Refused) as refused:
            await desk.offer("a", offer)
        assert "no_room" == refused.value.code
        assert not scene.fleet.expired("a")
    assert re.search(r"of a .*\d+ MB", desk.status().words)
    scene.fleet._intake._spare = 0
    incoming = await desk.offer("a", offer)
    incoming.path.write_bytes(raw)
    await desk.stored("a", offer.key)
    assert "" == place.words == desk.status().words


async def test_another_trouble_is_raised_as_it_is(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails for another reason says nothing of the disk."""
    scene.ask()
    await scene.take()
    offer, _ = scene.prepare_offer()
    assert "not_offered" == await refusal(lambda: scene.fleet.stored("a", offer.key))
    monkeypatch.setattr("shutil.disk_usage", lambda path: {}["unknown"])
    with pytest.raises(KeyError):
        await scene.fleet.offer("a", offer)
    assert "" == scene.fleet.status().words


class Desk:
    """A Desk whose calls end as they are told to, and which writes down what is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.notices = self.room = self.tasks = self

    def lack(self, words: str, *, crowded: bool = False) -> None:
        self.said.append(f"lack {'a descriptor' if crowded else words}")

    def relieve(self) -> None:
        self.said.append("relieve")

    def bear_with(self, site: str) -> None:
        self.said.append(f"bear with {site}")

    @tells_full_disk
    async def call(self, site: str, end: object) -> object:
        """End so."""
        if isinstance(end, Exception):
            raise end
        return end


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (OSError(errno.ENOSPC, "full"), "the coordinator's disk is full; its operator has to make room"),
        (Refused("no_room", "5 bytes are left"), "5 bytes are left"),
    ],
)
async def test_whom_a_full_disk_is_told(end: Exception, words: str) -> None:
    """The site by the refusal, the operator by a notice; what is lacking is said if it is known."""
    desk = Desk()
    with pytest.raises(Refused) as error:
        await desk.call("a", end)
    assert ("no_room", words) == (error.value.code, error.value.words)
    lacking = words if isinstance(end, Refused) else ""
    assert [f"lack {lacking}", "bear with a"] == desk.said


async def test_a_call_without_a_descriptor_is_to_come_again() -> None:
    """As on a full disk the site waits, and does not end with an error."""
    desk = Desk()
    with pytest.raises(Refused, match="too many connections") as error:
        await desk.call("a", OSError(errno.EMFILE, "too many open files"))
    assert "no_room" == error.value.code
    assert ["lack a descriptor", "bear with a"] == desk.said


async def test_what_says_nothing_of_the_disk() -> None:
    """Only a receipt shows that there is room again; another error or refusal is passed on in silence."""
    desk = Desk()
    for end in (OSError(errno.EIO, "broken"), Refused("late", "too late")):
        with pytest.raises(type(end)):
            await desk.call("a", end)
    assert "an answer" == await desk.call("a", "an answer")
    assert [] == desk.said
    await desk.call("a", Receipt("run", "key", "a", "d"))
    assert ["relieve"] == desk.said
