"""A download comes under the header of its task, or nothing of it is fetched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pfl_client.run_folder.download_header import check_header, crosses_as_delta, find_manifest
from pfl_client.trainer_process.task_errors import Tampered
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import Assignment, Blob, header_down
from pfl_common.spec.run import Header, Kind, RunSpec, Task
from tests.client.support.scripted_site import pin

DELTA = (Entry("w", "int8-change", (4, 4)),)
SENT = "ab" * 32
TASK = Task(Kind.TRAIN, 3, 3, since=2)


def pin_changes() -> RunSpec:
    """A run whose downloads cross as changes."""
    spec = pin()
    return replace(spec, manifests={**spec.manifests, "train/train/delta": DELTA}, downlink="delta")


def check(spec: RunSpec, task: Task, header: Header) -> None:
    """As before the first byte."""
    check_header(spec, Assignment(task, header, Blob("0" * 64, 16)))


@pytest.mark.parametrize("as_delta", [False, True])
def test_both_ways_of_a_download(as_delta: bool) -> None:
    """Which of them it is follows from the header, and with it how large it may be."""
    spec = pin_changes()
    header = replace(header_down(spec, TASK, state="x", sent=SENT, as_delta=as_delta), groups=("g",))
    check(spec, TASK, header)
    assert as_delta == crosses_as_delta(spec, TASK, header)
    assert find_manifest(spec, TASK, header) == (DELTA if as_delta else spec.manifests["train/train/down"])


@pytest.mark.parametrize("since", [0, 1, 3])
def test_a_change_for_a_site_that_was_not_in_the_round_before(since: int) -> None:
    """It has nothing to add it to: said before anything is fetched."""
    spec, task = pin_changes(), replace(TASK, since=since)
    with pytest.raises(
        Tampered, match=f"what was sent in round 2, and the coordinator goes on .* round {since}"
    ):
        check(spec, task, header_down(spec, task, sent=SENT, as_delta=True))
    check(spec, task, header_down(spec, task, sent=SENT))


def test_the_first_round_may_be_a_change_of_the_first_model() -> None:
    """Which a site has that was in no round yet."""
    spec, task = pin_changes(), Task(Kind.TRAIN, 1, 3)
    check(spec, task, header_down(spec, task, sent=SENT, as_delta=True))


WRONG = {
    "no hash": header_down(pin_changes(), TASK),
    "no such hash": header_down(pin_changes(), TASK, sent="ab"),
    "another round": header_down(pin_changes(), replace(TASK, round=2), sent=SENT),
    "another manifest": replace(header_down(pin_changes(), TASK, sent=SENT), manifest="m"),
    "from another sender": replace(header_down(pin_changes(), TASK, sent=SENT), sender="a"),
}


@pytest.mark.parametrize("header", WRONG.values(), ids=WRONG.keys())
def test_another_header(header: Header) -> None:
    """Whatever of it is another."""
    with pytest.raises(Tampered, match="under another header than its task's"):
        check(pin_changes(), TASK, header)


@pytest.mark.parametrize("kind", Kind)
def test_a_run_without_changes(kind: Kind) -> None:
    """Its headers say no hash, and those of a run with changes neither, where nothing is trained."""
    task = replace(TASK, kind=kind)
    check(pin(), task, header_down(pin(), task))
    with pytest.raises(Tampered):
        check(pin(), task, header_down(pin(), task, sent=SENT))
    if kind is not Kind.TRAIN:
        check(pin_changes(), task, header_down(pin_changes(), task))
        with pytest.raises(Tampered):
            check(pin_changes(), task, header_down(pin_changes(), task, sent=SENT))


def test_a_phase_that_the_run_does_not_have() -> None:
    """There is nothing to hold it to."""
    with pytest.raises(Tampered):
        check(pin(), replace(TASK, phase="other"), replace(header_down(pin(), TASK), phase="other"))
