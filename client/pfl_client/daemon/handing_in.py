"""Hands a finished task in: its evaluation, and its kept update or the word "dropped".

All of it lies in the run's folder: after a kill or a lost line the same bytes are sent again, and nothing is trained
twice. A small update goes with its evaluation and the question for the next task in one call, if the coordinator takes
that; what becomes of it is then asked for by single calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from pfl_client.connection.link import HandedIn, Link, Unreachable
from pfl_client.daemon.retry import Retry
from pfl_client.daemon.status import Watch
from pfl_client.policy.gate import Gate
from pfl_client.policy.refusal import Forbidden
from pfl_client.run_folder.audit import Audit
from pfl_client.run_folder.folder import RunFolder
from pfl_common.errors import Refused
from pfl_common.spec.messages import Assignment, Offer, Over, Receipt, Scores
from pfl_common.spec.run import Kind

SETTLE_SECONDS = 1.0


class HandingIn:
    """What a site says and sends at the end of a task."""

    def __init__(self, link: Link, gate: Gate, retry: Retry, watch: Watch, audit: Audit) -> None:
        self._link, self._gate, self._retry = link, gate, retry
        self._watch, self._audit = watch, audit
        self._settling: asyncio.Task[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._unsure = ""
        """The task that was handed in with one call which had no answer."""

    async def hand_in(self, folder: RunFolder, assignment: Assignment) -> Assignment | Over | None:
        """The evaluation first, so that it is not lost with a drop-out; then the update, or the word "dropped". Gives
        the next task if that came with the answer.
        """
        await self._settled()
        key, task = assignment.key, assignment.task
        scores = self._gate.tell(folder.spec.id, key, folder.measurements.report(key))
        if task.kind is Kind.TRAIN and not task.drop:
            return await self._send(folder, key, scores)
        if scores or task.kind is not Kind.TRAIN:
            await self._report(key, scores)
        if task.kind is not Kind.TRAIN:
            await self._until_room(folder, self._audit.settle)
        else:
            await self._retry.until_answered(lambda: self._link.decline(key, "dropped", ""))
        return None

    async def _send(self, folder: RunFolder, key: str, scores: Scores) -> Assignment | Over | None:
        """Write down what is about to leave, send it, and write its receipt down."""
        offer, parcel = folder.upload(key)
        try:
            self._gate.release(offer)
        except Forbidden:
            # The update stays; what was measured is told all the same.
            if scores:
                await self._report(key, scores)
            raise

        async def list_receipt() -> None:
            folder.audit(offer, receipt)

        handed = await self._send_at_once(folder, offer, parcel, scores)
        receipt = handed.receipt if handed else await self._send_by_calls(folder, offer, parcel, scores)
        await self._retry.until_room(list_receipt, folder.downloads.forget_opened)
        self._audit.close_task()
        self._settle_soon(folder)
        return handed.next if handed else None

    def _settle_soon(self, folder: RunFolder) -> None:
        """The receipt stands in the list. It is made to outlive a power cut with the next update, before that leaves;
        one that does not come soon is not waited for.
        """
        if self._soon is not None:
            self._soon.cancel()

        def settle() -> None:
            self._settling = asyncio.create_task(self._until_room(folder, self._audit.settle))

        self._soon = asyncio.get_running_loop().call_later(SETTLE_SECONDS, settle)

    async def end(self) -> None:
        """Nothing more will be handed in."""
        if self._soon is not None:
            self._soon.cancel()
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.wait({self._settling})

    async def _settled(self) -> None:
        settling, self._settling = self._settling, None
        if settling is not None:
            await settling

    async def _send_at_once(
        self, folder: RunFolder, offer: Offer, parcel: Path, scores: Scores
    ) -> HandedIn | None:
        """All in one call; None: by single calls."""
        announce, marks = partial(folder.announce, offer), folder.marks()

        async def ask() -> HandedIn | None:
            try:
                return await self._link.hand_in(offer, parcel, scores, marks=marks, announce=announce)
            except Unreachable:
                self._unsure = offer.key
                raise

        async def send() -> HandedIn | None:
            return await self._retry.until_answered(ask)

        self._watch.doing, began = "uploading", perf_counter()
        handed = await self._retry.until_room(send, folder.downloads.forget_opened)
        if handed is not None:
            held = min(max(0.0, handed.held_seconds), perf_counter() - began)
            self._watch.spend("upload", perf_counter() - began - held)
            self._watch.spend("wait", held)
        return handed

    async def _send_by_calls(self, folder: RunFolder, offer: Offer, parcel: Path, scores: Scores) -> Receipt:
        if scores:
            try:
                await self._report(offer.key, scores)
            except Refused as refused:
                # Both may be there already, and the receipt was lost on its way: the offer tells.
                if refused.code != "late" or self._unsure != offer.key:
                    raise
        await self._until_room(folder, partial(folder.announce, offer))
        with self._watch.phase("upload"):
            return await self._retry.until_answered(lambda: self._link.submit(offer, parcel))

    async def _report(self, key: str, scores: Scores) -> None:
        with self._watch.phase("report"):
            await self._retry.until_answered(lambda: self._link.report(key, scores))

    async def _until_room(self, folder: RunFolder, write: Callable[[], None]) -> None:
        await self._retry.until_room(partial(asyncio.to_thread, write), folder.downloads.forget_opened)
