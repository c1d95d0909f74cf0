"""Disk, checkpoints and certificates are looked at, but not at every scrape."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pfl_common.identity import Authority
from pfl_server.coordinator import find_ends
from pfl_server.surroundings import LOOK_SECONDS, Surroundings
from tests.client.sealed_line import Members


async def test_what_lies_around_a_run(tmp_path: Path) -> None:
    """Free space, what the run takes, and when its newest checkpoint was written."""
    run = tmp_path / "runs" / "run-1"
    (run / "checkpoints").mkdir(parents=True)
    (run / "spool").write_bytes(bytes(100_000))
    for number in (1, 2):
        note = run / "checkpoints" / f"round-00000{number}.json"
        note.write_text("{}")
        os.utime(note, (number * 1000, number * 1000))
    seen = Surroundings(tmp_path, lambda sites: {"authority": float(len(sites))})
    await seen.look(run, ("a", "b"))
    assert 2000.0 == seen.numbers["pfl_checkpoint_timestamp_seconds"]
    assert 100_000 <= seen.numbers["pfl_disk_used_bytes"] < 300_000
    assert seen.numbers["pfl_disk_free_bytes"] > 0
    assert {"authority": 2.0} == seen.ends


async def test_a_look_is_good_for_a_while(tmp_path: Path) -> None:
    """However often somebody asks, the disk is not kept busy."""
    now, looks = 0.0, 0

    def ends(sites: object) -> dict[str, float]:
        nonlocal looks
        looks += 1
        return {}

    seen = Surroundings(tmp_path, ends, clock=lambda: now)
    await seen.look(None, ())
    now = LOOK_SECONDS - 1
    await seen.look(None, ())
    assert 1 == looks
    now = LOOK_SECONDS
    await seen.look(None, ())
    assert 2 == looks


def test_the_first_card_that_ends(tmp_path: Path) -> None:
    """Of the registered sites alone; a card that has run out is not forgotten, one never seen is unknown."""
    members = Members(tmp_path)
    for site in ("a", "b"):
        members.keyring(site)
    authority: Authority = members.authority
    known = {"authority": 5.0}
    assert {"authority": 5.0} == find_ends(authority, known, ())
    ends = find_ends(authority, known, ("a", "b", "stranger"))
    card = authority.card_of("a", now=datetime.now(UTC))
    assert abs(ends["site_soonest"] - card.ends.timestamp()) < 5
    assert datetime.now(UTC) + timedelta(days=20) < datetime.fromtimestamp(ends["site_soonest"], UTC)
    for path in tmp_path.rglob("*.card"):
        path.unlink()
    assert ends == find_ends(authority, known, ("a", "b"))
