"""One attack against a federation: its rounds before and under it, what it cost the coordinator, how the run ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from tests.hostile.siege import MEMBER, Seen, Siege

Strike: TypeAlias = Callable[[Siege], Awaitable[None]]

FIRST_ROUNDS = 3
"""Before anything is measured: the first ones load what later ones have."""
FIRST_SECONDS = 1.0
"""An attack has so long to begin."""


@dataclass(frozen=True)
class Setting:
    """What a federation is attacked in."""

    seconds: float
    """For so long rounds are watched under the attack, and for half of it before."""
    rounds: int = 60
    """And so many under the attack. A member that turns is waited for in vain three times before it is set aside: with
    so many rounds the mean says what it costs a run, and not what it costs its first minute.
    """
    sites: int = 4
    descriptors: int = 1024
    work: float = 0.15
    """Seconds an honest site trains."""
    lease: float = 15.0
    """The product's own; under a member that holds rounds a short one shows in minutes what a long one does."""
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Found:
    """What was seen."""

    quiet: Seen
    loud: Seen
    ended: str
    """What all honest sites were told at the end of the run, and the coordinator's exit code."""
    ending_seconds: float
    """From the operator's wish to end the run until the last honest site had heard of it."""
    lost: int
    """Updates of honest sites that were not counted in committed rounds."""
    abandoned: int
    left: int
    """Files of uploads that nobody wants."""
    heard: dict[str, int]
    """What the attacker was told."""
    fates: dict[str, int]
    """Why the turned member's updates were not counted, and in how many rounds they were."""

    @property
    def ratio_of_medians(self) -> float:
        """Of a round's time under attack to that before."""
        return self.loud.median / self.quiet.median

    @property
    def ratio_of_means(self) -> float:
        """The same with each round that was held."""
        return self.loud.mean / self.quiet.mean


@dataclass(frozen=True)
class Bounds:
    """What no attack may exceed."""

    ratio: float = 2.0
    """Of the medians, and of the means."""
    fewest_rounds: int = 50
    """With fewer nothing is said of the mean."""
    more_megabytes: float = 150.0
    megabytes: float = 450.0
    spare_descriptors: int = 64
    """Of those that the coordinator may have."""
    log_bytes_a_second: float = 20_000.0
    ending_seconds: float = 15.0

    def broken(self, found: Found, setting: Setting) -> list[str]:
        """Each bound that does not hold, in words."""
        loud, quiet = found.loud, found.quiet
        enough = len(loud.rounds) >= self.fewest_rounds
        grown, most = loud.megabytes - quiet.megabytes, setting.descriptors - self.spare_descriptors
        log = loud.log_bytes / max(setting.seconds, sum(loud.rounds))
        rows = (
            (found.ratio_of_medians, self.ratio, "times the median of a round"),
            (found.ratio_of_means if enough else 0.0, self.ratio, "times the mean of a round"),
            (grown, self.more_megabytes, "MB more"),
            (loud.megabytes, self.megabytes, "MB in all"),
            (loud.descriptors, most, "descriptors"),
            (log, self.log_bytes_a_second, "bytes of log a second"),
            (found.ending_seconds, self.ending_seconds, "s until the honest sites heard of the end"),
        )
        words = [
            f"{seen:.6g} {what}; expected: less than {bound:g}" for seen, bound, what in rows if seen >= bound
        ]
        if found.lost:
            words.append(f"{found.lost} updates of honest sites were not counted; expected: none")
        if found.left:
            words.append(f"{found.left} files of uploads lie in the run's folder; expected: none")
        if found.ended != GOOD_END:
            words.append(f"the run {found.ended}; expected: {GOOD_END}")
        return words


GOOD_END = "stopped, exit 0"


async def measure(folder: Path, strike: Strike, setting: Setting) -> Found:
    """Play rounds, then rounds under the attack, then end the run while it goes on."""
    words = ("--lease-seconds", str(setting.lease), *setting.words)
    sized = {"sites": setting.sites, "descriptors": setting.descriptors, "work": setting.work}
    async with Siege(folder, member=True, words=words, **sized) as siege:
        await siege.play(FIRST_ROUNDS)
        quiet = await siege.watch(setting.seconds / 2)
        attacking = asyncio.ensure_future(strike(siege))
        try:
            await asyncio.sleep(FIRST_SECONDS)
            loud = await siege.watch(setting.seconds, rounds=setting.rounds)
            if attacking.done():
                attacking.result()  # an attack that has ended by itself shows nothing
            told, ending = await siege.stop()
        finally:
            attacking.cancel()
            await asyncio.gather(attacking, return_exceptions=True)
        code = await siege.quit()
        left = len(list((siege.run / "incoming").glob("*.part")))
        ended = f"{', '.join(sorted(told))}, exit {code}"
        rows = siege.attempts()
        lost, abandoned = count_lost(rows, siege.honest), sum(row["status"] == "abandoned" for row in rows)
        fates = tell_fates(rows) if MEMBER not in siege.honest else {}
        return Found(quiet, loud, ended, ending, lost, abandoned, left, dict(siege.heard), fates)


Rows: TypeAlias = Sequence[Mapping[str, object]]


def count_lost(rows: Rows, honest: Collection[str]) -> int:
    """Honest updates that committed rounds did not count."""
    committed = [cast(list[str], row["counted"]) for row in rows if row["status"] == "committed"]
    return sum(len(set(honest) - set(counted)) for counted in committed)


def tell_fates(rows: Rows) -> dict[str, int]:
    """What became of the turned member's updates; those that were counted while it was honest are among them."""
    losses = [cast(dict[str, str], row["losses"]).get(MEMBER, "counted") for row in rows]
    return dict(Counter(losses))
