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

LOOK_SECONDS = 3600.0

log = structlog.get_logger("pfl.site")


class Renewing(Protocol):
    """A link that can get a new certificate."""

    async def renew(self) -> bool:
        """Get one if the present one nears its end; whether it did."""


async def keep_renewed(link: Renewing) -> None:
    """Look every hour whether the certificate nears its end; what goes wrong is tried again."""
    while True:
        try:
            if await link.renew():
                log.info("certificate renewed")
        except (Unreachable, NotAdmitted, PflError, OSError) as error:
            # Also a disk that is full now: a renewal that is not tried again ends the site with its certificate.
            log.warning("the certificate was not renewed", why=str(error), again_in_seconds=LOOK_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)


def request(keyring: Keyring) -> pb.RenewRequest:
    """A certificate request and a card request with the site's own keys."""
    asked = keyring.card_request(keyring.name, keyring.federation_id)
    return pb.RenewRequest(csr_pem=keyring.csr(keyring.name), card_request=asked)


def keep(keyring: Keyring, said: pb.RenewAnswer) -> None:
    """Store the new certificate and card beside the keys."""
    keyring.store(said.certificate_pem, keyring.ca_pem)
    keyring.store_card(said.card)
