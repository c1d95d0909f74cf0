"""What the operator decides about sites, their keys and the federation's authority, as calls on the port for sites.

The coordinator does all of it itself: its keys may lie where the operator's own commands cannot read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import grpc
import structlog
from google.protobuf.message import Message

from pfl_common.errors import Refused, UserError
from pfl_common.identity import Authority, KeysRevoked, Ledger, SiteRemoved, tell_fingerprint
from pfl_common.identity.names import is_site_name
from pfl_common.spec.run import ClientId
from pfl_common.wire import administration_pb2 as pb
from pfl_server.network.requests import Gate, answer_operator
from pfl_server.sites.notices import Notices
from pfl_server.sites.service import Service

log = structlog.get_logger("pfl.coordinator")


class Administration:
    """The operator's decisions, carried out in the coordinator."""

    def __init__(
        self,
        authority: Authority,
        ledger: Ledger,
        notices: Notices,
        *,
        rotated: Callable[[], None] = lambda: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`rotated` is told when the authorities that are trusted have changed."""
        self._authority, self._ledger, self._notices = authority, ledger, notices
        self._rotated, self._clock = rotated, clock

    def handlers(
        self, service: Service, gate: Gate, *, end: Callable[[ClientId, Refused], None]
    ) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        """The calls by name; `end` ends the transfers of a site that are under way."""

        async def remove(said: pb.SiteRequest) -> Message:
            decided = await self._remove(service, _site(said))
            end(said.site, SiteRemoved(said.site))
            return decided

        async def revoke(said: pb.SiteRequest) -> Message:
            decided = await self._revoke(said)
            end(said.site, KeysRevoked(said.site))
            return decided

        calls = {"Remove": remove, "Revoke": revoke, "Approve": self._approve, "Deny": self._deny}
        answers = {
            name: answer_operator(name, pb.SiteRequest, call, gate=gate) for name, call in calls.items()
        }
        rotate = answer_operator("Rotate", pb.RotateRequest, self._rotate, gate=gate)
        return {**answers, "Rotate": rotate}

    async def _remove(self, service: Service, site: ClientId) -> Message:
        def write_down() -> None:
            # The card first: from then on no call of the site is heard, whatever becomes of the rest.
            self._authority.cards.remove(site)
            self._ledger.close(site)

        known = await asyncio.to_thread(self._is_known, site)
        if not known:
            raise _unknown(site)
        await asyncio.to_thread(write_down)
        self._notices.waiting.pop(site, None)
        await service.remove(site)
        log.warning("a site was removed", site=site)
        return pb.Decided(
            words=f"{site} is removed: its next call is refused, and the run goes on without it"
        )

    async def _revoke(self, said: pb.SiteRequest) -> Message:
        site = _site(said)
        if not await asyncio.to_thread(self._is_known, site):
            raise _unknown(site)
        holder = await asyncio.to_thread(self._ledger.holder_of, site)
        await asyncio.to_thread(lambda: self._authority.cards.revoke(site, holder=holder))
        self._notices.events.add(f"the keys of {site} were revoked by the operator", "warning")
        log.warning("a site's keys were revoked", site=site)
        return pb.Decided(
            words=f"the keys of {site} are worthless from its next call on; its place in the run stays"
        )

    async def _approve(self, said: pb.SiteRequest) -> Message:
        found = await self._decide(said, "approved")
        return pb.Decided(words=f"{said.site} is approved and comes in by itself", fingerprint=found)

    async def _deny(self, said: pb.SiteRequest) -> Message:
        found = await self._decide(said, "denied")
        return pb.Decided(words=f"{said.site} is denied; its invitation is worthless", fingerprint=found)

    async def _decide(self, said: pb.SiteRequest, approval: Literal["approved", "denied"]) -> str:
        site = _site(said)
        try:
            found = await asyncio.to_thread(
                lambda: self._ledger.decide(site, approval, fingerprint=said.fingerprint)
            )
        except UserError as error:
            raise Refused("other", str(error)) from None
        self._notices.waiting.pop(site, None)
        self._notices.events.add(f"{site} was {approval} by the operator")
        return tell_fingerprint(found)

    async def _rotate(self, said: pb.RotateRequest) -> Message:
        now, authority = self._clock(), self._authority
        lacking = await asyncio.to_thread(lambda: authority.lacking(now=now))
        if not said.finish:
            until = datetime.fromtimestamp(said.until, UTC) if said.until else None
            await asyncio.to_thread(lambda: authority.rotate(now=now, until=until))
            lacking = await asyncio.to_thread(lambda: authority.lacking(now=now))
            self._rotated()
            return pb.Rotated(words=_TAKES_OVER, lacking=lacking)
        if not authority.rotating:
            raise Refused("other", "no authority is taking over; expected: pfl rotate-ca before --finish")
        if lacking and not said.anyway:
            return pb.Rotated(words=_NOT_YET, lacking=lacking)
        await asyncio.to_thread(authority.finish)
        self._rotated()
        return pb.Rotated(words=_TAKEN_OVER, lacking=lacking)

    def _is_known(self, site: ClientId) -> bool:
        cards = self._authority.cards
        bar = cards.bar_of(site)
        return self._ledger.knows(site) or bool(cards.signers(site)) or bar.removed or bool(bar.keys)


_TAKES_OVER = (
    "a new authority is trusted beside the old one; sites learn of it when they renew their certificates, then: "
    "pfl rotate-ca --finish"
)
_NOT_YET = "some sites know the old authority only; wait until they have renewed, or: pfl rotate-ca --finish --anyway"
_TAKEN_OVER = "the new authority is trusted alone; invitations that were not used yet have to be written anew"


def _site(said: pb.SiteRequest) -> ClientId:
    if not is_site_name(said.site):
        raise Refused("other", f"a site called {said.site[:63]!r}; expected: a name that pfl status lists")
    return said.site


def _unknown(site: ClientId) -> Refused:
    return Refused("other", f"no site called {site} was ever invited or let in; look at: pfl status")
