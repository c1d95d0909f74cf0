"""What a round costs the coordinator for each site that is registered and not asked: its own steps alone, no sites.

A journal and a list of members as a run has them; fifty are drawn, the attempt is opened, looked up and committed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from pfl_common.spec.participation import Participation
from pfl_server.run.round_retries import RoundRetries
from pfl_server.sites.membership import Membership
from pfl_server.store.journal import Journal
from pfl_server.store.journal_thread import Page

COHORT = 50
REGISTERED = (50, 1_000, 10_000, 100_000)
ROUNDS = 40
LEASE_SECONDS = 15.0


@dataclass(frozen=True)
class Drawn:
    """What each round took, on average."""

    registered: int
    cpu_seconds: float
    journal_bytes: float

    def to_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def draw_all(folder: Path, *, rounds: int = ROUNDS) -> Iterator[Drawn]:
    """Rounds among more and more registered sites, all of which wait for work."""
    for count in REGISTERED:
        yield draw(folder / f"{count}.sqlite", count, rounds=rounds)


def draw(file: Path, registered: int, *, rounds: int) -> Drawn:
    """So many rounds among so many sites."""
    journal = Journal(file, durability="process")
    try:
        journal.scribe.ask(lambda page: _register(page, registered)).result()
        before = file.stat().st_size
        spent = asyncio.run(_play(journal, registered, rounds))
        return Drawn(registered, spent / rounds, (file.stat().st_size - before) / rounds)
    finally:
        journal.close()


def _register(page: Page, registered: int) -> None:
    said = json.dumps({"warnings": [], "samples": 4})
    for number in range(registered):
        page.write("insert into site (name, description, late) values (?, ?, 0)", f"site_{number:06d}", said)


async def _play(journal: Journal, registered: int, rounds: int) -> float:
    """Processor seconds of all rounds."""
    members = Membership(journal, time.monotonic, lease_seconds=LEASE_SECONDS, resumed=False)
    for member in members:
        member.waiting = 1
    share = COHORT / registered
    rules = {"seed": 1, "candidates": "roster", "quorum": "majority", "round_seconds": 60.0}
    spec = SimpleNamespace(participation=Participation(share, share), **rules)
    books = SimpleNamespace(spec=spec, beginning=None, journal=journal)
    fleet = SimpleNamespace(
        roster=members.names, present=members.present, present_among=members.present_among
    )
    parts = SimpleNamespace(books=books, fleet=fleet, room=None, observer=None)
    attempts = SimpleNamespace(fall_back=None)
    retries = RoundRetries(parts, attempts, script=None, tick=0.25, stop=asyncio.Event())
    began = time.process_time()
    for number in range(1, rounds + 1):
        candidates, drawn = await retries._draw(number, again=False)
        attempt = await journal.open_attempt.soon(number, candidates, drawn)
        await journal.attempt.soon(number, attempt)
        retries._losses.tried(fleet.present_among(retries.aside()), time.monotonic())
        await journal.commit.soon(number, attempt, drawn.cohort, {})
        retries._losses.take(drawn.cohort, {})
    return time.process_time() - began
