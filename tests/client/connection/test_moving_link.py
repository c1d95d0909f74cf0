"""A coordinator that was started anew at another address is found again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from pfl_client.connection import moving_link
from pfl_client.connection.link import Unreachable
from pfl_client.connection.moving_link import MovingLink
from pfl_common.spec.messages import Over
from tests.client.daemon.test_loop import FINISHED, Line


@dataclass
class Dialled(Line):
    """A line to one address; where nobody is any more every call fails, or hangs."""

    there: bool = True
    hangs: asyncio.Event | None = None
    closed: int = 0
    renewed: int = 0

    async def next_task(self, marks: object) -> Over:  # type: ignore[override]  # it always gives the end
        if self.hangs is not None:
            self.hangs.set()
            await asyncio.Event().wait()
        if not self.there:
            raise Unreachable("nobody there")
        return FINISHED

    async def renew(self) -> bool:
        self.renewed += 1
        return True

    async def close(self) -> None:
        self.closed += 1


@dataclass
class Town:
    """Where the coordinator is, and the lines that were dialled."""

    here: str | None
    lines: dict[str, Dialled] = field(default_factory=dict)
    looks: int = 0

    def dial(self, address: str) -> Dialled:
        self.lines[address] = Dialled([], there=address == self.here)
        return self.lines[address]

    def look(self) -> str | None:
        self.looks += 1
        return self.here

    def link(self, address: str) -> MovingLink:
        return MovingLink(address, dial=self.dial, look=self.look)


async def test_the_same_call_at_the_new_address() -> None:
    """It is asked at once where the coordinator is now; the old line is closed."""
    town = Town("new")
    link = town.link("old")
    assert FINISHED == await link.next_task(())
    assert FINISHED == await link.next_task(())
    assert await link.renew()
    assert (1, 1, 0) == (town.looks, town.lines["old"].closed, town.lines["old"].renewed)
    await link.aclose()
    assert 1 == town.lines["new"].closed


@pytest.mark.parametrize("here", [None, "old"])
async def test_nowhere_else(here: str | None) -> None:
    """Where it was is where it will be again; and it is not looked for in every moment."""
    town = Town(None)
    link = town.link("old")
    town.here = here
    for _ in range(3):
        with pytest.raises(Unreachable, match="nobody there"):
            await link.next_task(())
    assert (1, ["old"]) == (town.looks, list(town.lines))


async def test_a_call_that_hangs_at_the_old_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for: as soon as another call has found the new address it is asked there too."""
    monkeypatch.setattr(moving_link, "LOOK_SECONDS", 0.0)
    town = Town("new")
    link = town.link("old")
    old, hanging = town.lines["old"], asyncio.Event()
    old.hangs = hanging
    waiting = asyncio.create_task(link.next_task(()))
    await asyncio.wait_for(hanging.wait(), 10)
    old.hangs = None
    assert FINISHED == await link.next_task(())
    assert FINISHED == await asyncio.wait_for(waiting, 10)
