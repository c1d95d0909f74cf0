"""Rounds of honest sites under attack, and the end of a run that was attacked: `python -m tests.hostile`, in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.files.descriptors import raise_limit
from tests.hostile import members, ports
from tests.hostile.measure import Bounds, Setting, Strike, measure
from tests.hostile.same_end import compare

STRIKES: dict[str, Strike] = {
    "half sent messages": ports.half_sent_messages,
    "rising progress": members.STRIKES["beats_of_rising_progress"],
}
SETTING = Setting(seconds=1.0, rounds=8, sites=2, work=0.15, lease=4.0)
BOUNDS = Bounds(ratio=4.0, ending_seconds=30.0)
"""Wider than the long form's: other tests take the same processors, in one half of the measurement or in the other."""


@pytest.fixture(autouse=True)
def many_files() -> None:
    """For this process, which holds the other ends."""
    raise_limit()


@pytest.mark.parametrize("strike", STRIKES.values(), ids=STRIKES)
async def test_rounds_under_attack(tmp_path: Path, strike: Strike) -> None:
    """Their time, memory, descriptors and log are bounded, no honest update is lost, and the run ends when its operator
    wants it to.
    """
    found = await measure(tmp_path, strike, SETTING)
    assert [] == BOUNDS.broken(found, SETTING)


async def test_an_attacked_run_ends_as_it_would_have(tmp_path: Path) -> None:
    """The coordinator's checkpoints, every site's vault and its last model: equal byte for byte."""
    strikes = (ports.half_sent_messages, ports.half_requests)
    ends = await compare(tmp_path, strikes, sites=2, work=0.1, each=2)
    assert ({"finished"}, {"finished"}) == ends.told
    assert [] == ends.differing
    assert 2 + 2 * 3 == ends.files
