"""The policy in force: limits that hold across restarts, and what the site's list says of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pfl_client.policy.gate import Gate
from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.rules import Policy
from pfl_client.run_folder.audit import Audit
from pfl_client.trainer_process.task_errors import PersonalTensor
from pfl_common.errors import DataError
from pfl_common.spec.messages import Blob, Offer, header_up
from pfl_common.spec.run import Description, Kind, Task
from tests.client.policy.policies import pin, write_policy

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
RULES = ("runs.rounds", "uploads.largest", "uploads.per_day")
SPEC = pin()


def offer(number: int, size: int = 100, *, attempt: int = 1) -> Offer:
    """An update of a round, sealed."""
    task = Task(Kind.TRAIN, number, 9, attempt=attempt)
    header = header_up(SPEC, task, "site-1", state="")
    return Offer(task.key, header, Blob(f"{number:032d}{attempt:032d}", size))


def train(number: int, *, attempt: int = 1, drop: bool = False) -> Task:
    """The task of a round."""
    return Task(Kind.TRAIN, number, 9, attempt=attempt, drop=drop)


def open_gate(folder: Path, text: str, hours: float = 0) -> tuple[Gate, Audit]:
    """A site's gate so many hours after noon, with what its list remembers."""
    audit = Audit(folder / "state", clock=lambda: NOON + timedelta(hours=hours))
    return Gate(write_policy(folder, text), audit), audit


def listed(folder: Path, kind: str) -> list[dict[str, object]]:
    """The lines of one kind."""
    lines = map(json.loads, (folder / "state" / "audit.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def test_updates_of_a_run_are_counted_through_restarts(tmp_path: Path) -> None:
    """Two have left: a third task is refused, but not the one whose update is asked for again, nor a measurement."""
    text = "[runs]\nrounds = 2"
    for number in (1, 2):
        gate, audit = open_gate(tmp_path, text)
        gate.begin(SPEC, train(number))
        audit.announce(SPEC, offer(number))
    gate, _ = open_gate(tmp_path, text)
    gate.begin(SPEC, train(2))
    gate.begin(SPEC, train(3, drop=True))
    gate.begin(SPEC, Task(Kind.EVALUATE, 3, 9))
    for refused in (train(3), train(2, attempt=2)):
        with pytest.raises(Forbidden, match=r"2 updates have left.*runs\.rounds"):
            gate.begin(SPEC, refused)
    assert ["runs.rounds"] * 2 == [line["rule"] for line in listed(tmp_path, "refused")]


def test_the_bytes_of_a_day_are_counted_through_restarts(tmp_path: Path) -> None:
    """100 bytes have left at noon. At 150 a day there is no room for 100 more before the next noon."""
    text = "[uploads]\nper_day = '150'"
    _, audit = open_gate(tmp_path, text)
    audit.announce(SPEC, offer(1))
    gate, _ = open_gate(tmp_path, text, hours=23)
    gate.begin(SPEC, train(2))
    gate.release(offer(1))
    with pytest.raises(Forbidden, match=r"100 bytes of updates have left within 24 hours, and 100 more"):
        gate.release(offer(2))
    with pytest.raises(Forbidden, match=r"uploads\.per_day"):
        open_gate(tmp_path, "[uploads]\nper_day = '120'", hours=23)[0].begin(SPEC, train(2))
    open_gate(tmp_path, text, hours=24)[0].release(offer(2))


def test_an_update_is_weighed_as_it_is_sealed(tmp_path: Path) -> None:
    """One byte more than allowed does not leave."""
    gate, _ = open_gate(tmp_path, "[uploads]\nlargest = '100'")
    gate.release(offer(1, 100))
    with pytest.raises(Forbidden, match=r"the update has 101 bytes.*uploads\.largest"):
        gate.release(offer(2, 101))


def test_the_list_says_what_was_withheld_and_changed(tmp_path: Path) -> None:
    """The rules in force with their file's hash, then each message that is not as it was."""
    gate, _ = open_gate(tmp_path, '[joining]\nclass_names = "no"\n[metrics]\ndiagnostics = false')
    gate.describe(Description((4,), ("a", "b"), 9, kind="array", values="numbers"))
    gate.tell("run-1", "000001-1-train", {"told/loss": [1.0, 1.0, 1.0]})
    gate.tell("run-1", "000002-1-evaluate", {})
    (said,) = listed(tmp_path, "policy")
    assert {"joining.class_names": "no", "metrics.diagnostics": False} == said["rules"]
    withheld = [(line["message"], line["what"], line.get("task")) for line in listed(tmp_path, "withheld")]
    assert [("joining", ["classes"], None), ("scores", ["diagnostics"], "000001-1-train")] == withheld


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("", DataError("class 'x' has gone"), "class 'x' has gone"),
        ('[joining]\nclass_names = "no"', DataError("class 'x' has gone"), ""),
        ("", Forbidden(Policy(), "runs.rounds", "3 of 3", expected="2"), "this site's policy: runs.rounds"),
        ("", PersonalTensor("the update holds 'show.head'"), "this site's policy: personal tensors stay"),
    ],
)
def test_why_a_task_is_not_done(tmp_path: Path, text: str, error: Exception, told: str) -> None:
    """Of a policy's refusal its rule alone; where something of the data is withheld, no words that may repeat it."""
    assert told == open_gate(tmp_path, text)[0].explain(error)
