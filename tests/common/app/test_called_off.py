"""All who wait hear at once that it is in vain, and nobody is kept who has nothing to wait for."""

from __future__ import annotations

import asyncio

import pytest

from pfl_common.app.called_off import CalledOff, Waiting


async def test_work_that_ends_gives_its_result() -> None:
    """Its own troubles are its own, also those that look like the end of a time."""
    waiting = Waiting()

    async def fail() -> None:
        raise TimeoutError("its own")

    assert 7 == await waiting.until_off(asyncio.sleep(0, 7))
    with pytest.raises(TimeoutError, match="its own"):
        await waiting.until_off(fail())


async def test_all_who_wait_are_called_off() -> None:
    """Those that wait now, whose work is cancelled, and those that come later, whose work never begins."""
    waiting, begun, ended = Waiting(), asyncio.Event(), list[str]()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    waiters = [asyncio.create_task(waiting.until_off(work())) for _ in range(2)]
    await begun.wait()
    waiting.call_off()
    found = await asyncio.gather(*waiters, return_exceptions=True)
    assert [CalledOff, CalledOff] == [type(each) for each in found]
    assert ["work", "work"] == ended
    begun.clear()
    with pytest.raises(CalledOff):
        await waiting.until_off(work())
    assert not begun.is_set()


async def test_who_is_cancelled_is_not_called_off() -> None:
    """A program that stops must not take it for a line that broke."""
    waiting = Waiting()
    waiter = asyncio.create_task(waiting.until_off(asyncio.Event().wait()))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    waiting.call_off()  # nobody is left to hear it
