"""The site's link to its coordinator: gRPC over mutual TLS, always dialled by the site.

A coordinator of this machine may have another address after a restart: the line is replaced, the link stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from pfl_client.connection import certificate_renewal
from pfl_client.connection.bulk import AGAIN, Carrier
from pfl_client.connection.channel import DIRECT, Answer, Line, Patience, Tell, open_channel
from pfl_client.connection.link import (
    INIT,
    Announce,
    HandedIn,
    Marks,
    NotAdmitted,
    Tap,
    Traffic,
    Unreachable,
)
from pfl_client.connection.message_values import spell
from pfl_common.app.called_off import CalledOff
from pfl_common.errors import Refused, StateError
from pfl_common.identity import Keyring
from pfl_common.identity.cards import COORDINATOR, Card, read_card
from pfl_common.sealing.calls import CallSigner
from pfl_common.spec.digests import FIRST, Digests, digest_of
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    Scores,
    Visited,
)
from pfl_common.spec.run import Description
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire.carrying import say_hand_in

HOLD_SECONDS = 1.0
"""The coordinator may keep a heartbeat's answer so long: while a call is open it sees at once that this site goes."""
HAND_IN_SECONDS = 1.0
"""A receipt may wait so long for the next task, to come with it."""
LOOK_SECONDS = 2.0
"""Not more often than this is a coordinator that does not answer looked for."""

log = structlog.get_logger("pfl.site")

Words = ParamSpec("Words")
Heard = TypeVar("Heard")


def _followed(
    call: Callable[Concatenate[GrpcLink, Words], Coroutine[Any, Any, Heard]],
) -> Callable[Concatenate[GrpcLink, Words], Coroutine[Any, Any, Heard]]:
    """Repeat a call that came to nothing where the coordinator is now, if that is another address."""

    @wraps(call)
    async def follow(link: GrpcLink, /, *words: Words.args, **named: Words.kwargs) -> Heard:
        line = link._line
        try:
            return await _unless_left(line, call(link, *words, **named))
        except Unreachable:
            # Every call is safe to repeat: where it is known to be now, it is asked at once.
            if line is link._line and not await link._move():
                raise
        return await _unless_left(link._line, call(link, *words, **named))

    return follow


async def _unless_left(line: Line, call: Awaitable[Heard]) -> Heard:
    """Wait for a call, but do not go on trying where the coordinator is no more."""
    try:
        return await line.calls.until_off(call)
    except CalledOff:
        raise Unreachable(f"the coordinator is not at {line.address} any more") from None


class GrpcLink:
    """A `Link` to the coordinator, first at `address` (host:port). Make it inside a running event loop; close it."""

    def __init__(
        self,
        address: str,
        keyring: Keyring,
        *,
        roots: bytes | None = None,
        patience: Patience | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        # A proxy that ends TLS has a certificate of its own: `roots` signed it, and no client certificate passes it.
        # Who is who is then known by the signatures alone.
        self._keyring, self._clock, self._roots = keyring, clock, roots
        self._patience = patience or (DIRECT if roots is None else Patience())
        self._line = self._dial(address)
        self.carrier = Carrier(self._line, self._patience)
        self._beside = dict[str, bytes]()
        self._takes_all_at_once = False
        self._look: Callable[[], str | None] | None = None
        self._looked = float("-inf")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up; calls under way end as `Unreachable`."""
        await self._line.channel.close(None)

    def counting(self, traffic: Traffic) -> Self:
        """Count what crosses there, beside what other lines have carried."""
        self._line.traffic = traffic
        return self

    def telling(self, tell: Tell) -> Self:
        """Tell of each message before it is sent there."""
        self._line.tell = tell
        return self

    def following(self, look: Callable[[], str | None]) -> Self:
        """Go on elsewhere when nobody answers: `look` returns the coordinator's present address, or nothing."""
        self._look = look
        return self

    @_followed
    async def join(self, description: Description) -> Joined | Gathering | None:
        """Register with what the data looks like; None while the run is still gathering sites: ask again."""
        try:
            return convert.hear_joined(
                await self._ask("Join", convert.say_description(description), pb.JoinAnswer)
            )
        except Refused as refused:
            # The same site with the same data would hear the same.
            raise NotAdmitted(refused.words, refused.code) from refused

    @_followed
    async def visit(self) -> Visited | None:
        """Ask for the newest shared state, telling nothing; None: there is none yet, ask again."""
        try:
            # The coordinator may hold the answer back while it gathers its sites.
            said = await self._ask(
                "Visit", pb.VisitRequest(), pb.VisitAnswer, waiting=self._patience.wait_seconds
            )
        except Refused as refused:
            raise NotAdmitted(refused.words, refused.code) from refused
        return convert.hear_visited(said)

    @_followed
    async def next_task(
        self, marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        """Wait for work, saying which vault generations there are, newest first; None: ask again."""
        wait, carrier = self._patience.wait_seconds, self.carrier
        request = self._question(marks, before, wait=wait)
        try:
            said = await self._ask("NextTask", request, pb.NextTaskAnswer, waiting=wait)
        except Unreachable:
            carrier.go_plain()
            raise
        return self._hear_work(said)

    @_followed
    async def fetch(
        self,
        blob: Blob,
        into: Path,
        *,
        kind: str = INIT,
        by: Digests = FIRST,
        tap: Tap | None = None,
    ) -> None:
        """Bring bytes into a file, but not those it already holds; the digest is checked."""
        if content := self.take_beside(blob, by):
            into.write_bytes(content)
        else:
            await self.carrier.fetch(blob, into, kind=kind, by=by, tap=tap)

    def take_beside(self, blob: Blob, by: Digests = FIRST) -> bytes:
        """All of a download's bytes that came with its task, of this digest; empty if they have to be fetched."""
        content = self._beside.pop(blob.digest, b"")
        return content if content and digest_of(content, by) == blob.digest else b""

    @_followed
    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        """Hand an upload in; goes on where an interrupted transfer stopped."""
        _check_size(parcel, parcel.stat().st_size, offer.blob.size)
        kind, carrier = offer.header.kind, self.carrier

        async def make_offer() -> int | Receipt:
            # Offered once more, the bytes follow in a stream, which a line may be too slow or too bad to do without.
            content = parcel.read_bytes() if offer.blob.size <= carrier.beside_bytes else b""
            try:
                return await self._offer(offer, content)
            except Unreachable:
                carrier.go_plain()
                raise

        return _check_receipt(await carrier.store(offer.key, parcel, make_offer, kind=kind), offer)

    @_followed
    async def hand_in(
        self, offer: Offer, parcel: Path, scores: Scores, *, marks: Marks, announce: Announce
    ) -> HandedIn | None:
        """An upload, its evaluation and the question for the next task in one call, if it is small enough and the
        coordinator takes that.
        """
        if not self._takes_all_at_once or offer.blob.size > self.carrier.beside_bytes:
            return None
        content, question = parcel.read_bytes(), self._question(*marks, wait=HAND_IN_SECONDS)
        _check_size(parcel, len(content), offer.blob.size)
        request = say_hand_in(offer, content, scores, question)
        report = request.report.SerializeToString() if scores else b""

        def list_report() -> None:
            if report:
                self._line.tell("Report", report, len(report), partial(spell, request.report))

        await asyncio.to_thread(announce, list_report)
        try:
            said = await self._ask(
                "HandIn", request, pb.HandInAnswer, waiting=HAND_IN_SECONDS, listed=len(report)
            )
        except Unreachable:
            self.carrier.go_plain()
            raise
        except Refused as refused:
            if refused.code in AGAIN:
                return None
            raise
        receipt = _check_receipt(convert.hear_receipt(said.receipt), offer)
        return HandedIn(receipt, self._hear_work(said.next), said.held_seconds)

    @_followed
    async def report(self, key: str, scores: Scores) -> None:
        """Hand in an evaluation."""
        await self._ask("Report", convert.say_scores(key, scores), pb.Done)

    @_followed
    async def decline(self, key: str, reason: str, words: str) -> None:
        """Say that a task will not be done, with a reason from the fixed list."""
        # Words may quote the name of a file, and such a name need not be text.
        readable = words.encode(errors="replace").decode()
        await self._ask("Decline", pb.DeclineRequest(key=key, reason=reason, words=readable), pb.Done)

    @_followed
    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far the task is (samples trained); False: the task is no longer wanted."""
        request = pb.HeartbeatRequest(key=key, progress=progress, hold_seconds=HOLD_SECONDS)
        return (await self._ask("Heartbeat", request, pb.HeartbeatAnswer)).wanted

    async def pause(self) -> None:
        """Say that this site stops and will come back: the coordinator shows it as away, and waits for it."""
        await self._ask("Leave", pb.LeaveRequest(comes_back=True), pb.Done)

    async def leave(self) -> None:
        """Say goodbye: this site takes no more tasks until it joins again."""
        await self._ask("Leave", pb.LeaveRequest(), pb.Done)

    @_followed
    async def renew(self) -> bool:
        """Get a new certificate if the present one nears its end; whether it did."""
        keyring = self._keyring
        if not keyring.needs_renewal(self._clock()) and keyring.card is not None:
            return False
        # Files, locks and parsing: not in the event loop, where heartbeats would wait for a slow disk.
        hybrid = self._line.signer is not None and self._line.signer.meets_hybrid
        request = await asyncio.to_thread(certificate_renewal.request, keyring, hybrid=hybrid)
        said = await self._ask("Renew", request, pb.RenewAnswer)
        # Not given up halfway: a line that still shows the old certificate would end with it.
        await asyncio.shield(self._take_up(said))
        return True

    def life_left(self) -> tuple[float, float]:
        """In how many seconds the certificate wants to be renewed, and in how many it ends."""
        now = self._clock()
        return self._keyring.renewal_due(now), (self._keyring.ends - now).total_seconds()

    async def _take_up(self, said: pb.RenewAnswer) -> None:
        await asyncio.to_thread(certificate_renewal.keep, self._keyring, said)
        before = self._line.channel
        self._line.channel = open_channel(self._line.address, self._credentials())
        # What is under way ends on the old line, or begins again on the new one after this time.
        await before.close(grace=self._patience.wait_seconds + self._patience.call_seconds)

    def _dial(self, address: str) -> Line:
        self._check_certificate()
        keyring = self._keyring
        signer = CallSigner(keyring.envelope_keys(), keyring.name, read_card=self._read_card)
        return Line(open_channel(address, self._credentials()), address, self._check_certificate, signer)

    async def _move(self) -> bool:
        """Replace the line if the coordinator is elsewhere now; whether it was replaced."""
        now = asyncio.get_running_loop().time()
        if self._look is None or now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        before, address = self._line, await asyncio.to_thread(self._look)
        if before is not self._line or address is None or address == before.address:
            return before is not self._line
        log.warning("the coordinator is at another address now", before=before.address, now=address)
        fresh = self._dial(address)
        fresh.traffic, fresh.tell = before.traffic, before.tell
        self._line, self.carrier, self._beside = fresh, Carrier(fresh, self._patience), {}
        self._takes_all_at_once = False
        before.calls.call_off()
        await before.channel.close(None)
        return True

    def _question(
        self, marks: tuple[Mark, ...], before: tuple[Mark, ...], *, wait: float
    ) -> pb.NextTaskRequest:
        beside = self.carrier.beside_bytes
        return convert.say_marks(marks, wait_seconds=wait, beside_bytes=beside, before=before)

    def _hear_work(self, said: pb.NextTaskAnswer) -> Assignment | Over | None:
        """What there is to do; bytes that came with it are kept until they are fetched."""
        work = convert.hear_work(said)
        self._beside.clear()
        if isinstance(work, Assignment):
            self._takes_all_at_once = said.assignment.hand_in
            if content := said.assignment.content:
                self._beside[work.blob.digest] = content
        return work

    async def _offer(self, offer: Offer, content: bytes = b"") -> int | Receipt:
        request = convert.say_offer(offer)
        request.content = content
        said = await self._ask("Offer", request, pb.OfferAnswer)
        if said.WhichOneof("answer") == "receipt":
            return convert.hear_receipt(said.receipt)
        return said.room.offset

    async def _ask(
        self, call: str, request: Message, answer: type[Answer], *, waiting: float = 0.0, listed: int = 0
    ) -> Answer:
        seconds, name = self._patience.call_seconds + waiting, f"{convert.COORDINATOR}/{call}"
        return await self._line.ask(name, request, answer, seconds=seconds, listed=listed)

    def _credentials(self) -> grpc.ChannelCredentials:
        if self._roots is not None:
            return grpc.ssl_channel_credentials(self._roots)
        keyring = self._keyring
        return grpc.ssl_channel_credentials(keyring.ca_pem, keyring.key_pem, keyring.certificate_pem)

    def _read_card(self, card: bytes) -> Card:
        return read_card(card, self._keyring.ca_pem, name=COORDINATOR, now=self._clock())

    def _check_certificate(self) -> None:
        self._keyring.check(self._clock())


def _check_receipt(receipt: Receipt, offer: Offer) -> Receipt:
    if (receipt.key, receipt.digest) != (offer.key, offer.blob.digest):
        raise Refused("other", f"a receipt for {receipt.key}; expected: {offer.key} and its bytes")
    return receipt


def _check_size(parcel: Path, size: int, expected: int) -> None:
    if size != expected:
        raise StateError(
            f"the update {parcel.name} has {size} bytes",
            expected=f"the {expected} bytes that were offered",
            advice="a file in the site's state folder was changed; start the site again",
        )
