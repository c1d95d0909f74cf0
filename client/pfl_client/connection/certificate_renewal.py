"""Renews a site's short-lived certificate before it expires, for as long as the site runs.

The call itself is the link's (`GrpcLink.renew`), which puts a line with the new certificate in the old one's place.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_common.errors import PflError
from pfl_common.identity import Keyring
from pfl_common.wire import coordinator_pb2 as pb

LOOK_SECONDS, SHORTEST_SECONDS = 3600.0, 0.5
"""At most and at least so long after a look comes the next one, however long certificates live."""

log = structlog.get_logger("pfl.site")


class Renewing(Protocol):
    """A link that can get a new certificate."""

    async def renew(self) -> bool:
        """Get one if the present one nears its end; whether it did."""

    def life_left(self) -> tuple[float, float]:
        """In how many seconds the present one wants to be renewed, and in how many it ends; negative: since then."""


async def keep_renewed(link: Renewing) -> None:
    """Look whenever the certificate may near its end, at least every hour; what goes wrong is tried again."""
    while True:
        pause = LOOK_SECONDS
        try:
            if await link.renew():
                log.info("certificate renewed")
        except (Unreachable, NotAdmitted, PflError, OSError) as error:
            # Also a disk that is full now: a renewal that is not tried again ends the site with its certificate.
            pause = _retry_after(link.life_left()[1])
            log.warning("the certificate was not renewed", why=str(error), again_in_seconds=round(pause, 1))
        else:
            pause = min(LOOK_SECONDS, max(SHORTEST_SECONDS, link.life_left()[0]))
        await asyncio.sleep(pause)


def _retry_after(left: float) -> float:
    """Some ten times before the certificate ends, and at least every hour."""
    return min(LOOK_SECONDS, max(SHORTEST_SECONDS, left / 10))


def request(keyring: Keyring, *, hybrid: bool = False) -> pb.RenewRequest:
    """A certificate request and a card request with the site's own keys."""
    asked = keyring.card_request(keyring.name, keyring.federation_id, hybrid=hybrid)
    return pb.RenewRequest(csr_pem=keyring.csr(keyring.name), card_request=asked)


def keep(keyring: Keyring, said: pb.RenewAnswer) -> None:
    """Store the new certificate and card beside the keys, and the authorities that are trusted from now on."""
    keyring.store(said.certificate_pem, said.authorities_pem or keyring.ca_pem)
    keyring.store_card(said.card)
