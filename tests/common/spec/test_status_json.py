"""A status is read as it was written, and what no coordinator would write is an error in words."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given

from pfl_common.errors import UserError
from pfl_common.spec import status_json
from pfl_common.spec.messages import Event, Point, RunStatus, SiteStatus
from tests.common.support.statuses import statuses

PLAIN = RunStatus("run-1", "fedavg", "running", 3, 9, 1)
FULL = replace(
    PLAIN,
    sites=(SiteStatus("a", "here", 0.1),),
    curve=(Point(1, 20.0, 1.5, 2, 2, 0),),
    events=(Event(20.0, "info", "begun"),),
)


@given(statuses)
def test_a_status_is_read_as_it_was_written(status: RunStatus) -> None:
    """What the operator sees is what the coordinator meant, to the last bit."""
    assert status == status_json.read(status_json.write(status))


def test_its_keys_are_the_fields() -> None:
    """Programs that read the page's facts find each under its name; what nobody has measured is null."""
    assert json.loads(json.dumps(asdict(FULL))) == json.loads(status_json.write(FULL))


def test_no_terminal_obeys_a_part_of_it() -> None:
    """Whatever somebody has said stands in it as ASCII without control characters."""
    content = status_json.write(replace(PLAIN, words="\x1b[2J \x9b1m \u202eé"))
    assert [] == [sign for sign in content.decode("ascii") if not sign.isprintable()]


def test_facts_of_a_newer_coordinator() -> None:
    """They are passed over, and those that an older one does not tell are not known."""
    told = json.loads(status_json.write(PLAIN))
    del told["refused"]
    assert PLAIN == status_json.read(json.dumps({**told, "moon": "full"}).encode())


def spoilt(**changes: object) -> bytes:
    """A status with other values than there can be."""
    return json.dumps({**json.loads(status_json.write(FULL)), **changes}).encode()


def line(name: str, **changes: object) -> bytes:
    """The same, in the only line of a list."""
    (told,) = json.loads(status_json.write(FULL))[name]
    return spoilt(**{name: [{**told, **changes}]})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "EOF"),
        (b"\xff", "not written in ASCII"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "an object"),
        (b"{}", "run: "),
        (b" " * (status_json.MOST_BYTES + 1), f"at most {status_json.MOST_BYTES}"),
        (b'{"run": "\\ud800"}', "hex escape"),
        (b'{"run": "a\x1b"}', "control character"),
        (spoilt(round="3"), "round: "),
        (spoilt(round=True), "round: "),
        (spoilt(round=-1), "round: "),
        (spoilt(round=2**64), "round: "),
        (spoilt(round=0).replace(b'"round": 0', b'"round": ' + b"9" * 5000), "number"),
        (spoilt(now=float("nan")), "now: "),
        (spoilt(now=float("inf")), "now: "),
        (spoilt(now=1e13), "now: "),
        (spoilt(spec=[1]), "spec: "),
        (spoilt(scores={"loss": None}), "scores.loss: "),
        (spoilt(sites={}), "sites: "),
        (line("sites", phase="asleep"), "sites.0.phase: "),
        (line("sites", warnings="odd"), "sites.0.warnings: "),
        (line("curve", accuracy=float("inf")), "curve.0.accuracy: "),
        (line("curve", diagnostics={"\x1b[2J": "x"}), "curve.0.diagnostics.\\x1b[2J: "),
        (line("events", level="whisper"), "events.0.level: "),
    ],
)
def test_what_no_coordinator_would_write(content: bytes, why: str) -> None:
    """Seen, expected, what to do: the place is named, and nothing is repeated that a terminal would obey."""
    with pytest.raises(UserError) as refused:
        status_json.read(content)
    assert refused.value.seen.startswith("the coordinator's status cannot be read: ")
    assert why in refused.value.seen
    assert refused.value.seen.isprintable()
    assert len(refused.value.seen) < 1100
