"""Batches in halves: tried once, remembered, and never where halves are other mathematics."""

from __future__ import annotations

import pytest

from pfl_client.trainer.memory_retries import Parts, train_within_memory
from pfl_client.trainer_process.api import Done
from pfl_client.trainer_process.task_errors import OutOfMemory


class Machine:
    """Memory that is too little for a batch in fewer parts than these."""

    def __init__(self, needs: int, why_whole: str = "") -> None:
        self.needs, self.why, self.tried, self.freed = needs, why_whole, list[int](), 0

    def attempt(self, number: int) -> Done:
        """Train with batches in so many parts."""
        self.tried.append(number)
        if number < self.needs:
            raise self.lack()
        return Done(halved=number > 1)

    def lack(self) -> OutOfMemory:
        """Too little memory."""
        return OutOfMemory("too little memory", expected="more", advice="more")

    def let_go(self) -> None:
        """Free what is cached."""
        self.freed += 1

    def train(self, parts: Parts) -> Done:
        """A training of this site."""
        return train_within_memory(
            parts,
            self.attempt,
            let_go=self.let_go,
            why_whole=lambda: self.why,
            lack=self.lack,
            round_=1,
        )


def test_a_training_that_fits_is_done_once() -> None:
    """In whole batches."""
    machine, parts = Machine(1), Parts()
    assert not machine.train(parts).halved
    assert ([1], 0, Parts()) == (machine.tried, machine.freed, parts)


def test_halves_are_remembered() -> None:
    """The next training begins with them."""
    machine, parts = Machine(2), Parts()
    assert [True, True] == [machine.train(parts).halved for _ in range(2)]
    assert ([1, 2, 2], 1, Parts(2)) == (machine.tried, machine.freed, parts)


def test_halves_that_do_not_fit_are_not_halved_again() -> None:
    """And the next training begins with whole batches: what was scarce may be free by then."""
    machine, parts = Machine(3), Parts()
    with pytest.raises(OutOfMemory):
        machine.train(parts)
    assert ([1, 2], Parts()) == (machine.tried, parts)


def test_the_reason_against_halves_is_remembered() -> None:
    """It is told, and no half is tried, now or later."""
    machine, parts = Machine(2, "it is one sample"), Parts()
    for _ in range(2):
        with pytest.raises(OutOfMemory):
            machine.train(parts)
    assert ([1, 1], "; a batch cannot be halved: it is one sample") == (machine.tried, parts.words)
