"""Hands a finished task in: its evaluation, and its kept update or the word "dropped".

All of it lies in the run's folder: after a kill or a lost line the same bytes are sent again, and nothing is trained
twice.
"""

from __future__ import annotations

import asyncio
from functools import partial

from pfl_client.connection.link import Link
from pfl_client.daemon.retry import Retry
from pfl_client.daemon.status import Watch
from pfl_client.policy.gate import Gate
from pfl_client.run_folder.audit import Audit
from pfl_client.run_folder.folder import RunFolder
from pfl_common.spec.messages import Assignment
from pfl_common.spec.run import Kind


class HandingIn:
    """What a site says and sends at the end of a task."""

    def __init__(self, link: Link, gate: Gate, retry: Retry, watch: Watch, audit: Audit) -> None:
        self._link, self._gate, self._retry = link, gate, retry
        self._watch, self._audit = watch, audit

    async def hand_in(self, folder: RunFolder, assignment: Assignment) -> None:
        """The evaluation first, so that it is not lost with a drop-out; then the update, or the word "dropped"."""
        key, task = assignment.key, assignment.task
        scores = self._gate.tell(folder.spec.id, key, folder.measurements.report(key))
        if scores or task.kind is not Kind.TRAIN:
            with self._watch.phase("report"):
                await self._retry.until_answered(lambda: self._link.report(key, scores))
        if task.kind is not Kind.TRAIN:
            await self._retry.until_room(
                partial(asyncio.to_thread, self._audit.settle), folder.downloads.forget_opened
            )
        elif task.drop:
            await self._retry.until_answered(lambda: self._link.decline(key, "dropped", ""))
        else:
            await self._send(folder, key)

    async def _send(self, folder: RunFolder, key: str) -> None:
        """Write down what is about to leave, send it, and write its receipt down."""
        offer, parcel = folder.upload(key)
        self._gate.release(offer)
        await self._retry.until_room(
            partial(asyncio.to_thread, folder.announce, offer), folder.downloads.forget_opened
        )
        with self._watch.phase("upload"):
            receipt = await self._retry.until_answered(lambda: self._link.submit(offer, parcel))
        await self._retry.until_room(
            partial(asyncio.to_thread, folder.audit, offer, receipt), folder.downloads.forget_opened
        )
