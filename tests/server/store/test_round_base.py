"""What sites are sent of a round's base where downloads cross as changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pfl_common.spec.manifest import Entry
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.sent_state import digest_of
from pfl_common.tensors.state import State
from pfl_server.store.round_base import Base, find_sent
from tests.server.support.federation import pin_spec

DELTA = (Entry("b", "float32", (1,)), Entry("w", "int8-change", (2,)))
SPEC = replace(pin_spec(()), downlink="delta", digests="blake3")
SPEC = replace(SPEC, manifests={**SPEC.manifests, "train/train/delta": DELTA})
STATE = State({"b": torch.ones(1), "w": torch.tensor([64.5, 0.75])})
BEFORE = State({"w": torch.tensor([1.0, 2.0])})
TASK = Task(Kind.TRAIN, 3, 9, since=2)


def test_a_round_follows_the_one_before() -> None:
    """Both ways in which it can be sent lead to what the hash is of."""
    sent = find_sent(SPEC, TASK, Base(2, STATE, BEFORE))
    assert [64.5, 1.0] == sent.values["w"].tolist()
    assert (BEFORE, DELTA) == (sent.before, sent.manifest)
    assert digest_of(sent.values, DELTA, "blake3") == sent.digest
    assert [True, False, False] == [sent.is_change_for(replace(TASK, since=n)) for n in (2, 1, 0)]


def test_the_first_round_follows_the_first_model() -> None:
    """Which every site has: nothing is left to cross."""
    sent = find_sent(SPEC, replace(TASK, round=1, since=0), Base(0, STATE, STATE.only(["w"])))
    assert torch.equal(STATE["w"], sent.values["w"])
    assert sent.is_change_for(replace(TASK, round=1, since=0))


ANEW = {
    "from another run": (replace(TASK, round=1, since=0), Base(0, STATE)),
    "after a fall": (TASK, Base(1, STATE, BEFORE)),
    "another phase": (TASK, Base(2, STATE, State({"v": torch.ones(2)}))),
    "more in it": (TASK, Base(2, STATE, BEFORE | {"v": torch.ones(2)})),
}


@pytest.mark.parametrize(("task", "base"), ANEW.values(), ids=ANEW.keys())
def test_a_round_that_begins_anew(task: Task, base: Base) -> None:
    """Everybody is sent the state as it is, whoever was in the round before."""
    sent = find_sent(SPEC, task, base)
    assert STATE.only(["w"]) == sent.values
    assert digest_of(STATE, DELTA, "blake3") == sent.digest
    assert not sent.is_change_for(replace(task, since=task.round - 1))


@pytest.mark.parametrize(
    "task", [replace(TASK, kind=Kind.EVALUATE), replace(TASK, kind=Kind.FINISH), replace(TASK, phase="last")]
)
def test_what_crosses_as_values(task: Task) -> None:
    """Downloads to measure, the last one, and those of a phase without changes."""
    sent = find_sent(SPEC, task, Base(2, STATE, BEFORE))
    assert ((), "", False) == (sent.manifest, sent.digest, sent.is_change_for(task))
