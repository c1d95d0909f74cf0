"""The trainer's loop: an answer to each letter, and what happens between two."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client.trainer import loop
from pfl_client.trainer_process import protocol
from pfl_client.trainer_process.api import DataFolder
from pfl_common.spec.run import Description

FOLDER = DataFolder(Path("data"), "hospital_a")


class Ended(Exception):
    """No letter more."""


class Wire:
    """Brings so many questions and keeps what is done, in order."""

    def __init__(self, done: list[object], questions: int) -> None:
        self.done, self._questions = done, questions

    def receive(self) -> tuple[protocol.Letter, memoryview]:
        self._questions -= 1
        if self._questions < 0:
            raise Ended
        return protocol.Describe(FOLDER), memoryview(b"")

    def send(self, letter: protocol.Letter, body: protocol.Buffer = b"") -> None:
        self.done.append(letter.says)


class Bench:
    """Describes, and finds no memory for what it would make ready."""

    def __init__(self, done: list[object]) -> None:
        self._done = done

    def describe(self, folder: DataFolder) -> Description:
        return Description(shape=(4,), classes=("a", "b"), samples=4, kind="array")

    def make_ready(self) -> None:
        self._done.append("ready")
        raise MemoryError


def test_memory_goes_back_when_the_answer_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but a little, after each letter; then the next task is made ready, and want of memory there ends nothing."""
    done = list[object]()
    monkeypatch.setattr(loop, "let_go_of_free_memory", lambda *, beyond: done.append(beyond))
    with pytest.raises(Ended):
        loop.serve(Wire(done, questions=2), Bench(done))
    assert ["described", loop.KEPT, "ready"] * 2 == done
