"""What a member of the run does to it over the real wire: with its own keys, seals and signatures, and no honesty.

It took part as it should until it turned (`Siege.turn`); from then on it says what each attack makes it say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch
from google.protobuf.message import Message
from grpc import RpcError, aio

from pfl_client.connection.channel import Patience
from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_common.errors import Refused
from pfl_common.evaluation import vector
from pfl_common.identity import Keyring
from pfl_common.spec.messages import Assignment, Joined, Mark, Offer, Over, Receipt, header_up
from pfl_common.spec.run import Description, Kind, RunSpec
from pfl_common.tensors import codec
from pfl_common.tensors.state import State
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from tests.benchmarks.transport.light import SAMPLES, LightBench
from tests.hostile.bench import SCALE
from tests.hostile.measure import Setting, Strike
from tests.hostile.raw_line import say
from tests.hostile.siege import Siege
from tests.hostile.updates import multiply, overwrite, weigh
from tests.server.support.insiders import (
    Attack,
    ask_for_ever,
    beat_for_ever,
    beat_on,
    come_and_go,
    decline,
    hold_the_end,
    open_for_ever,
    trickle,
)

STEP = SCALE
"""What it adds to each number where it does not lie: about what the honest sites do."""
LOOK_EVERY = 25
"""Bytes sent one by one between two looks whether they are wanted."""
AT_ONCE = 4
SCORES, CLASSES = 350_000, 300_000
PATIENCE = Patience(call_seconds=10.0, wait_seconds=2.0, attempts=1)

Change: TypeAlias = Callable[[State, State], State]


class Turned:
    """A member over a real line."""

    pause = 0.02

    def __init__(self, siege: Siege, link: GrpcLink, keyring: Keyring, folder: Path) -> None:
        self.link, self._siege, self._site, self._folder = link, siege, keyring.name, folder
        self._envelopes = SealedEnvelopes(keyring)
        self._marks: tuple[Mark, ...] = ()
        self.spec: RunSpec

    async def join(self) -> None:
        """Register, once more."""
        joined = await self.link.join(await describe())
        assert isinstance(joined, Joined), "the run is under way"
        self._envelopes.meet(joined.card)
        self.spec = RunSpec.from_json(joined.spec)

    async def leave(self) -> None:
        """Say goodbye."""
        await self.link.leave()

    async def next_task(self) -> Assignment | None:
        """Wait for work; None when the run is over."""
        found = None
        while found is None:
            found = await self.link.next_task(self._marks)
        return None if isinstance(found, Over) else found

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far it is, and let nobody hold the answer back."""
        request = pb.HeartbeatRequest(key=key, progress=progress, hold_seconds=0.0)
        return (await self.link._ask("Heartbeat", request, pb.HeartbeatAnswer)).wanted

    async def decline(self, key: str, reason: str) -> None:
        """Say no."""
        await self.link.decline(key, reason, "no")

    async def answer(self, assignment: Assignment, change: Change | None = None) -> None:
        """Hand in what was asked for, changed if so."""
        await self.link.report(assignment.key, {"pre/test/combined": vector(1, 2, 0.7)})
        if assignment.task.kind is Kind.TRAIN:
            offer, file = await self.seal(assignment, change)
            await self.link.submit(offer, file)

    async def trickle(self, assignment: Assignment) -> None:
        """Send an upload byte by byte, as long as it is wanted."""
        offer, file = await self.seal(assignment)
        if isinstance(await self.link._offer(offer), Receipt):
            return
        stream = self.open_store(offer)
        try:
            for number, byte in enumerate(file.read_bytes()):
                await stream.write(bytes([byte]))
                await asyncio.sleep(self.pause)
                if not number % LOOK_EVERY and not await self.heartbeat(assignment.key, 0):
                    return
        finally:
            stream.cancel()

    def open_store(self, offer: Offer) -> aio.StreamUnaryCall[bytes, bytes]:
        """A stream for an upload, of which nothing has been sent."""
        line, said = self.link._line, convert.say_store(offer.key, 0)
        method = line.channel.stream_unary(
            f"/{convert.BULK}/Store", request_serializer=bytes, response_deserializer=bytes
        )
        return method(metadata=((convert.STORE_METADATA, said), *line.sign("Store", said)))

    async def seal(self, assignment: Assignment, change: Change | None = None) -> tuple[Offer, Path]:
        """An update that is sealed and signed as it should be, whatever its numbers are."""
        task, blob, spec = assignment.task, assignment.blob, self.spec
        down, plain = self._folder / "down", self._folder / "plain"
        down.unlink(missing_ok=True)
        await self.link.fetch(blob, down)
        letter = self._envelopes.receive(assignment.header, blob, assignment.seal)
        parcel = letter.read(down)
        assert not isinstance(parcel, Path)
        sent = codec.decode(bytearray(parcel), spec.manifest(task.kind, task.phase, "down"), ())
        up = self._learn(sent)
        if change is not None:
            up = change(up, State({f"sum.{name}": value for name, value in sent.items()}))
        with plain.open("wb") as out:
            groups = codec.encode(up, spec.manifest(task.kind, task.phase, "up"), out)
        header = replace(header_up(spec, task, self._site, state=assignment.header.state), groups=groups)
        file = self._folder / f"{task.key}.up"
        closed = self._envelopes.close(plain.read_bytes(), header, file)
        return Offer(task.key, header, closed.blob, closed.seal), file

    def _learn(self, sent: State) -> State:
        entries = self.spec.manifest(Kind.TRAIN, "train", "up")
        weight = 1 if self.spec.settings.get("aggregation") == "uniform" else SAMPLES
        learnt = {f"sum.{name}": value + STEP for name, value in sent.items()}
        return State(
            {
                entry.name: learnt[entry.name] if entry.name in learnt else torch.tensor(weight)
                for entry in entries
            }
        )

    def note(self, error: Exception) -> None:
        """What came back."""
        self._siege.heard[getattr(error, "code", "") or "no answer"] += 1


@asynccontextmanager
async def turned(siege: Siege) -> AsyncIterator[Turned]:
    """The run's member, turned, on a line of its own."""
    keyring = await siege.turn()
    folder = siege.folder / "turned"
    folder.mkdir()
    async with GrpcLink(siege.found.addresses.control, keyring, patience=PATIENCE) as link:
        member = Turned(siege, link, keyring, folder)
        await member.join()
        yield member


async def repeat(member: Turned, act: Callable[[], Awaitable[object]]) -> None:
    """Again and again, whatever the coordinator says to it."""
    while True:
        try:
            await act()
        except (Refused, NotAdmitted, Unreachable) as refused:
            member.note(refused)
        await asyncio.sleep(member.pause)


def play(attack: Attack) -> Strike:
    """An attack that needs nothing but what any member can say."""

    async def strike(siege: Siege) -> None:
        async with turned(siege) as member:
            await repeat(member, lambda: attack(member))

    strike.__doc__ = attack.__doc__
    return strike


def send(change: Change) -> Strike:
    """Take part in each round, with an update that is changed so."""

    async def strike(siege: Siege) -> None:
        async def take_part() -> None:
            if (assignment := await member.next_task()) is not None:
                await member.answer(assignment, change)

        async with turned(siege) as member:
            await repeat(member, take_part)

    return strike


async def flood_of_offers(siege: Siege) -> None:
    """Offer an upload again and again, four at a time, and never send it."""

    async def offer_on() -> None:
        if (assignment := await member.next_task()) is None:
            return
        offer, _ = await member.seal(assignment)

        async def offer_again() -> None:
            while True:
                await member.link._offer(offer)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(offer_again())

    async with turned(siege) as member:
        await repeat(member, lambda: _one_of_many(offer_on()))


async def _one_of_many(work: Awaitable[None]) -> None:
    """Of errors that came together, the first."""
    try:
        await work
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


async def late_stores(siege: Siege) -> None:
    """Offer each upload, wait until the task is over, and send it then, in a stream that was open and in a new one."""

    async def come_late() -> None:
        if (assignment := await member.next_task()) is None:
            return
        offer, file = await member.seal(assignment)
        await member.link._offer(offer)
        stream = member.open_store(offer)
        content = file.read_bytes()
        with suppress(RpcError, asyncio.InvalidStateError):
            await stream.write(content[:1])
            await beat_on(member, assignment)
            await stream.write(content[1:])
            await stream.done_writing()
            await stream
        await member.link.carrier._store_rest(offer.key, file, 0)

    async with turned(siege) as member:
        await repeat(member, come_late)


def ask_raw(call: str, message: Message | bytes) -> Strike:
    """A call with such a message, four at a time."""
    body = message if isinstance(message, bytes) else message.SerializeToString()

    async def strike(siege: Siege) -> None:
        async def ask() -> None:
            try:
                await say(member.link, call, body)
            except aio.AioRpcError as error:
                raise member.link._line.explain(error) from None

        async with turned(siege) as member:
            await asyncio.gather(*(repeat(member, ask) for _ in range(AT_ONCE)))

    return strike


def join_as(description: Description) -> Strike:
    """Register again with other data."""

    async def strike(siege: Siege) -> None:
        async with turned(siege) as member:
            await repeat(member, lambda: member.link.join(description))

    return strike


async def describe() -> Description:
    """The data that the federation's sites have."""
    return await LightBench().describe(None)  # type: ignore[arg-type]  # it is not looked at


def _of(**fields: object) -> Description:
    base = Description(shape=(4,), classes=("a", "b"), samples=SAMPLES, kind="array")
    return replace(base, **fields)  # type: ignore[arg-type]  # fields of a description


HOLDING: dict[str, Strike] = {
    "beats_of_rising_progress": play(beat_for_ever),
    "reading_data_for_ever": play(open_for_ever),
    "the_same_task_again": play(ask_for_ever),
    "an_upload_a_byte_at_a_time": play(trickle),
    "holding_the_end": play(hold_the_end),
}
ENDING: dict[str, Strike] = {
    "declines_each_task": play(decline("trainer_failed")),
    "leaves_and_joins": play(come_and_go),
}
LYING: dict[str, Strike] = {
    "a_thousand_times_the_change": send(multiply(1000.0)),
    "not_a_number": send(overwrite(float("nan"), "")),
    "the_largest_weight": send(weigh(2**63 - 1)),
    "a_weight_under_uniform": send(weigh(1000)),
}
FLOODING: dict[str, Strike] = {
    "flood_of_offers": flood_of_offers,
    "late_stores": late_stores,
    "many_scores": ask_raw("Report", b"\x12\x02\x0a\x00" * SCORES),
    "class_names": join_as(_of(classes=tuple(f"class {number}" for number in range(CLASSES)))),
    "an_absurd_shape": join_as(_of(shape=(1 << 20, 1 << 20, 1 << 20))),
}
STRIKES = HOLDING | ENDING | LYING | FLOODING
WORDS = {"a_weight_under_uniform": ("--set", "aggregation=uniform")}
"""What the coordinator is started with, for an attack that needs it so."""
LONG = {"reading_data_for_ever": 200}
"""Rounds of an attack whose wait is longer: a site may read its data for twenty leases once in a coordinator's life."""


LEASE_SECONDS = 2.0
"""Under what a member does."""


def fit(setting: Setting, name: str) -> Setting:
    """What an attack needs: rounds enough for its cost to show, a short lease where that is what is attacked."""
    if name not in STRIKES:
        return setting
    rounds = max(setting.rounds, LONG.get(name, 0)) if setting.rounds == Setting.rounds else setting.rounds
    return replace(setting, rounds=rounds, lease=LEASE_SECONDS, words=WORDS.get(name, ()))
