"""Trains batches in two halves where memory is too little for whole ones, if halves are the same mathematics."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from pfl_client.trainer_process.api import Done
from pfl_client.trainer_process.task_errors import OutOfMemory
from pfl_common.learning.method import Participant
from pfl_common.learning.partition import has_batch_norm

log = structlog.get_logger("pfl.trainer")


@dataclass
class Parts:
    """In how many parts this machine's memory makes batches pass through the network."""

    number: int = 1
    refused: str = ""
    """Why they cannot be halved, once that is known."""

    @property
    def words(self) -> str:
        """What was tried, for an error that says how memory was too little."""
        halves = ", with each batch in two halves too" if self.number > 1 else ""
        return f"{halves}; a batch cannot be halved: {self.refused}" if self.refused else halves


def train_within_memory(  # noqa: PLR0913  # what it tries, and what it does between
    parts: Parts,
    attempt: Callable[[int], Done],
    *,
    let_go: Callable[[], None],
    why_whole: Callable[[], str],
    lack: Callable[[], OutOfMemory],
    round_: int,
) -> Done:
    """Do a training by an `attempt` with so many parts; one that ran out of memory once more, in halves. Where that
    would not be the same mathematics it is the `lack` that it was.
    """
    if parts.number > 1 or parts.refused:
        return attempt(parts.number)
    try:
        return attempt(1)
    except OutOfMemory:
        pass  # Only after this block is what the first attempt held let go, and loops among it by the collector.
    gc.collect()
    let_go()
    parts.refused = why_whole()
    if parts.refused:
        raise lack()
    done = attempt(2)
    parts.number = 2
    log.warning("too little memory: from now on batches are trained in two halves", round=round_)
    return done


def find_why_whole(participant: Participant) -> str:
    """Why batches cannot be trained in halves of equal mathematics; empty if they can."""
    if participant.settings.batch == 1:
        return "it is one sample"
    if has_batch_norm(participant):
        return "its batch norm takes mean and variance of a whole batch"
    return participant.whole_batch
