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
    "a thousand times the change": members.STRIKES["a_thousand_times_the_change"],
}
SETTING = Setting(seconds=2.0, rounds=10, sites=3, work=0.1, lease=1.0)


@pytest.fixture(autouse=True)
def many_files() -> None:
    """For this process, which holds the other ends."""
    raise_limit()


@pytest.mark.parametrize("strike", STRIKES.values(), ids=STRIKES)
async def test_rounds_under_attack(tmp_path: Path, strike: Strike) -> None:
    """Their median is less than doubled, memory, descriptors and log are bounded, no honest update is lost, and the run
    ends when its operator wants it to.
    """
    found = await measure(tmp_path, strike, SETTING)
    assert [] == Bounds().broken(found, SETTING)


async def test_an_attacked_run_ends_as_it_would_have(tmp_path: Path) -> None:
    """The coordinator's checkpoints, every site's vault and its last model: equal byte for byte."""
    strikes = (ports.half_sent_messages, ports.wrong_proofs)
    ends = await compare(tmp_path, strikes, sites=2, work=0.1, each=3)
    assert ({"finished"}, {"finished"}) == ends.told
    assert [] == ends.differing
    assert 2 + 2 * 3 == ends.files
