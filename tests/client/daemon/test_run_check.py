"""What a coordinator says of a run is held against bounds before anything is made for it."""

from __future__ import annotations

import json

import pytest

from pfl_client.daemon.run_check import hear_run
from pfl_common.errors import Distrusted
from pfl_common.spec.messages import Blob, Joined
from pfl_common.spec.run_bounds import MOST_BYTES
from tests.client.support.scripted_site import pin


def joined(text: str) -> Joined:
    """An answer to Join with this specification."""
    return Joined(text, Blob("ab" * 32, 8))


def changed(**fields: object) -> str:
    """The specification of an honest run, but for these fields."""
    return json.dumps({**json.loads(pin().to_json()), **fields})


def test_an_honest_run_is_heard() -> None:
    """As it was pinned."""
    assert pin() == hear_run(joined(pin().to_json()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"id":"run-1"}',
        changed(id="../../etc"),
        changed(attic=1),
        changed(digests="blake9"),
        changed(rounds="many\x1b[2J"),
        changed(threads=100_000),
        changed(lease_seconds=-5),
        changed(begins_from={"run": "../x", "spec": "0" * 64, "round": 1, "state": "0" * 64}),
        changed(lease_seconds=10).replace("10", "1e999", 1),
        " " * (MOST_BYTES + 1),
    ],
    ids=lambda text: text[:40],
)
def test_anything_else_ends_in_words(text: str) -> None:
    """What was seen, what was expected, what to do; with the exit code of what a person has to look at."""
    with pytest.raises(Distrusted) as error:
        hear_run(joined(text))
    assert error.value.seen.startswith("the coordinator sends")
    assert error.value.seen.isprintable()
    assert error.value.expected
    assert "not to be trusted" in error.value.advice
    assert 2 == error.value.exit_code
