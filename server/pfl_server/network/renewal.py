"""Renews what the coordinator shows to others before it ends, while it runs: certificates, its card, the operator's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

import structlog

from pfl_common.errors import PflError
from pfl_common.identity import Authority, KeyPair
from pfl_common.identity.authority import OPERATOR_LIFE, RENEWED_BELOW

LOOK_SECONDS = 3600.0
"""At least so often the clock is looked at: a machine may have been asleep."""

log = structlog.get_logger("pfl.coordinator")


class Shows(Protocol):
    """A port that shows a certificate and can show another one from the next line on."""

    def show(self, pair: KeyPair, ca_pem: bytes, /) -> None:
        """Show this one, and trust the certificates of these authorities."""


class HasCard(Protocol):
    """What shows the coordinator's card."""

    card: bytes


class Renewal:
    """Everything the authority gives to the coordinator itself, made anew after two thirds of its life."""

    def __init__(  # noqa: PLR0913  # what it is put together of, all but the first two by default
        self,
        authority: Authority,
        hosts: Sequence[str],
        *,
        cards: Sequence[HasCard] = (),
        ports: Sequence[Shows] = (),
        hybrid: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._authority, self._hosts, self._hybrid, self._clock = authority, list(hosts), hybrid, clock
        self._cards, self._ports = cards, ports
        self.publish: Callable[[], None] = lambda: None
        """Told after each renewal: the operator's commands come with the new certificate, and trust what is shown."""
        self._changed = asyncio.Event()
        self.renew()

    def renew(self) -> None:
        """Make all of it anew."""
        now, authority = self._clock(), self._authority
        self.pair = authority.server_certificate(self._hosts, now=now)
        self.operator = authority.new_operator(now)
        card = authority.coordinator_card(now=now, hybrid=self._hybrid)
        for one in self._cards:
            one.card = card
        for port in self._ports:
            port.show(self.pair, authority.ca_pem)
        self._due = now + min(authority.lives.server, OPERATOR_LIFE) * (1 - RENEWED_BELOW)

    def change(self) -> None:
        """The authorities that are trusted have changed: show it now."""
        self._changed.set()

    async def keep(self) -> None:
        """Renew in time, for as long as the coordinator runs; what goes wrong is tried again."""
        while True:
            left = (self._due - self._clock()).total_seconds()
            try:
                async with asyncio.timeout(min(LOOK_SECONDS, max(0.5, left))):
                    await self._changed.wait()
            except TimeoutError:
                pass
            changed, self._changed = self._changed.is_set(), asyncio.Event()
            try:
                ended = await asyncio.to_thread(self._end_rotation)
                if changed or ended or self._clock() >= self._due:
                    await asyncio.to_thread(self.renew)
                    self.publish()
                    log.info("own certificate renewed", new_authority=changed or ended)
            except (PflError, OSError) as error:
                log.error("the coordinator's own certificate was not renewed", why=str(error))

    def _end_rotation(self) -> bool:
        until = self._authority.until
        if until is None or self._clock() < until:
            return False
        self._authority.finish()
        log.warning("the new authority is trusted alone: its day has come")
        return True
