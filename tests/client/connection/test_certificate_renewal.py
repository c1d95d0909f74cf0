"""Short-lived certificates are renewed for as long as the site lives."""

from __future__ import annotations

import asyncio
import errno

import pytest

from pfl_client.connection import certificate_renewal
from pfl_client.connection.link import Unreachable


class Renewing:
    """A line whose renewals go wrong before one succeeds."""

    def __init__(self, troubles: list[Exception]) -> None:
        self._troubles, self.done = troubles, asyncio.Event()

    def life_left(self) -> tuple[float, float]:
        return 60.0, 600.0

    async def renew(self) -> bool:
        if self._troubles:
            raise self._troubles.pop(0)
        self.done.set()
        return True


async def test_a_renewal_that_went_wrong_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk passes, like a line that is down: neither ends the renewing for good."""
    monkeypatch.setattr(certificate_renewal, "LOOK_SECONDS", 0.0)
    line = Renewing([Unreachable("down"), OSError(errno.ENOSPC, "No space left on device")])
    renewal = asyncio.create_task(certificate_renewal.keep_renewed(line))
    hearing = asyncio.create_task(line.done.wait())
    await asyncio.wait({renewal, hearing}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert line.done.is_set()
    renewal.cancel()
    with pytest.raises(asyncio.CancelledError):
        await renewal
