"""Bytes are counted as they cross real sockets, by what they are for; what is repeated counts again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pfl_client.connection.link import Traffic
from pfl_server.network.server import GrpcServer
from tests.network.federation import Federation
from tests.network.file_desk import upload

MIB = 1 << 20


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    """A coordinator that listens."""
    (tmp_path / "federation").mkdir()
    one = Federation(tmp_path / "federation")
    await one.start()
    yield one
    await one.stop()


def moved(traffic: Traffic) -> dict[tuple[str, ...], int]:
    """What is not 0."""
    return {place: count for place, count in traffic.crossed().items() if count}


async def test_files_count_by_their_task(federation: Federation, tmp_path: Path) -> None:
    """What is there is not brought again; a wrong beginning costs the rest and then the whole."""
    content, traffic = os.urandom(3 * MIB), Traffic()
    blob = federation.desk.lay(content)
    (tmp_path / "half").write_bytes(content[:MIB])
    (tmp_path / "wrong").write_bytes(bytes(MIB))
    (tmp_path / "up").write_bytes(b"update")
    async with federation.link("hospital_a").counting(traffic) as link:
        await link.fetch(blob, tmp_path / "init", kind="init")
        await link.fetch(blob, tmp_path / "half", kind="train")
        await link.fetch(blob, tmp_path / "wrong", kind="evaluate")
        await link.submit(upload("hospital_a", b"update"), tmp_path / "up")
    files = {place: count for place, count in moved(traffic).items() if place[1] != "calls"}
    assert {
        ("down", "init"): 3 * MIB,
        ("down", "train"): 2 * MIB,
        ("down", "evaluate"): 5 * MIB,
        ("up", "train"): 6,
    } == files
    assert (10 * MIB, 6) == (traffic.in_files("down"), traffic.in_files("up"))


async def test_calls_count_both_ways(federation: Federation) -> None:
    """A first call is sent twice: the coordinator refuses it until it has given a session."""
    traffic = Traffic()
    async with federation.link("hospital_a").counting(traffic) as link:
        assert await link.heartbeat("000001-1-train", 5)
    found, theirs = moved(traffic), federation.server.meter.bytes
    # Two bytes and fourteen letters for the key, two bytes for the number, and each time a signature beside them; an
    # answer of two bytes with its signature, and the session.
    assert found["up", "calls"] > 2 * (18 + 64)
    assert found["down", "calls"] > 2 + 64
    assert found == {place: count for place, count in theirs.items() if count}


async def test_a_line_to_another_address_goes_on_counting(federation: Federation, tmp_path: Path) -> None:
    """The same books for both lines: no number falls when a coordinator comes back elsewhere."""
    traffic, content = Traffic(), b"first model"
    blob = federation.desk.lay(content)
    before = federation.addresses.control
    link = federation.link("hospital_a").counting(traffic).following(lambda: federation.addresses.control)
    await link.fetch(blob, tmp_path / "one", kind="train")
    await federation.server.stop(0)
    federation.server = GrpcServer(federation.callers())
    federation.port = await federation.start_control()
    await link.fetch(blob, tmp_path / "two", kind="train")
    await link.close()
    assert before != federation.addresses.control == link._line.address
    assert 2 * len(content) == moved(traffic)["down", "train"]
