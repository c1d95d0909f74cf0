"""A socket that is waited for in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import zmq

from pfl_client.trainer_process.mailbox import Mailbox


class Ends(NamedTuple):
    """Both ends of a connection within one process."""

    ours: zmq.Socket[bytes]
    theirs: zmq.Socket[bytes]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Which take two messages each until they are read."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as ours, context.socket(zmq.PAIR) as theirs:
        for socket in (ours, theirs):
            socket.setsockopt(zmq.SNDHWM, 1)
            socket.setsockopt(zmq.RCVHWM, 1)
            socket.setsockopt(zmq.LINGER, 0)
        ours.bind("inproc://mailbox")
        theirs.connect("inproc://mailbox")
        yield Ends(ours, theirs)


async def receive(mailbox: Mailbox) -> list[bytes]:
    """A whole message."""
    frames: list[zmq.Frame] = []
    await mailbox.receive(frames.append)
    return [frame.bytes for frame in frames]


async def test_messages_come_as_they_were_sent(ends: Ends) -> None:
    """Those that are there already, and one that is waited for; each with all its frames."""
    mailbox = Mailbox(ends.ours)
    ends.theirs.send_multipart([b"one", b"", b"1"])
    ends.theirs.send_multipart([b"two"])
    assert [b"one", b"", b"1"] == await receive(mailbox)
    assert [b"two"] == await receive(mailbox)
    waiting = asyncio.create_task(receive(mailbox))
    await asyncio.sleep(0)
    assert not waiting.done()
    ends.theirs.send_multipart([b"three", b"3"])
    assert [b"three", b"3"] == await asyncio.wait_for(waiting, 10)
    await mailbox.send([b"an", memoryview(b"answer")])
    assert [b"an", b"answer"] == ends.theirs.recv_multipart()
    mailbox.close()


async def test_a_message_waits_for_room(ends: Ends) -> None:
    """Nobody reads: what finds no room goes when there is some, whole and in its order."""
    mailbox, sent = Mailbox(ends.ours), 0

    async def send() -> None:
        nonlocal sent
        for number in range(9):
            await mailbox.send([b"%d" % number, b"more"])
            sent += 1

    sending = asyncio.create_task(send())
    await asyncio.sleep(0)
    assert 0 < sent < 9
    read = [await asyncio.to_thread(ends.theirs.recv_multipart) for _ in range(9)]
    await asyncio.wait_for(sending, 10)
    assert [[b"%d" % number, b"more"] for number in range(9)] == read
    mailbox.close()


async def test_who_waits_at_a_mailbox_that_closes_is_cancelled(ends: Ends) -> None:
    """There will be no message; and it may be closed twice."""
    mailbox = Mailbox(ends.ours)
    waiting = asyncio.create_task(receive(mailbox))
    await asyncio.sleep(0)
    mailbox.close()
    mailbox.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_message_nobody_waits_for_costs_no_turns(ends: Ends) -> None:
    """The event loop is woken by it once, not until somebody reads it."""
    mailbox, woken = Mailbox(ends.ours), []
    wake = mailbox._wake
    ends.ours.getsockopt(zmq.EVENTS)
    asyncio.get_running_loop().add_reader(mailbox._handle, lambda: (woken.append(1), wake()))
    ends.theirs.send(b"early")
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert 1 == len(woken)
    assert [b"early"] == await receive(mailbox)
    mailbox.close()
