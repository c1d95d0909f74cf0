"""A run with all strangers' attacks during it, one after the other, ends in the bytes of the same run undisturbed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.measure import Strike
from tests.hostile.siege import Siege

ROUNDS_EACH = 4
"""Rounds that each attack lasts."""
SEED = 15
KEPT = ("checkpoints", "generations", "serving")
"""The folders of tensors, the first of them the coordinator's, the others each site's."""


@dataclass(frozen=True)
class Ends:
    """What two runs left behind."""

    told: tuple[set[str], set[str]]
    files: int
    differing: list[str]
    """Files that only one of them has, or that differ in a byte."""


async def compare(
    folder: Path, strikes: Sequence[Strike], *, sites: int = 3, work: float = 0.25, each: int = ROUNDS_EACH
) -> Ends:
    """Play the run twice, the second time with the attacks."""
    rounds = 2 + each * (len(strikes) + 1)
    told = [
        await _play(folder / name, attacks, sites=sites, rounds=rounds, work=work, each=each)
        for name, attacks in (("quiet", ()), ("attacked", strikes))
    ]
    first, second = (_read(folder / name) for name in ("quiet", "attacked"))
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return Ends((told[0], told[1]), len(first), differing)


async def _play(
    folder: Path, strikes: Sequence[Strike], *, sites: int, rounds: int, work: float, each: int
) -> set[str]:
    words = ("--seed", str(SEED))
    async with Siege(folder, sites=sites, rounds=rounds, work=work if strikes else 0.0, words=words) as siege:
        if strikes:
            await siege.play(1)
        for strike in strikes:
            async with _under(strike, siege):
                # While rounds are left: an attack that comes after the end shows nothing.
                await siege.play(each)
        told = await siege.wait_over()
        assert 0 == await siege.quit()
        return told


@asynccontextmanager
async def _under(strike: Strike, siege: Siege) -> AsyncIterator[None]:
    attacking = asyncio.ensure_future(strike(siege))
    try:
        yield
        if attacking.done():
            attacking.result()
    finally:
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)


def _read(folder: Path) -> dict[str, bytes]:
    """Every file of tensors, by its place; each federation gives its run a name of its own."""
    coordinators, *of_sites = KEPT
    found = list((folder / "state").glob(f"runs/*/{coordinators}/*.safetensors"))
    for kind in of_sites:
        found += folder.glob(f"site_*/runs/*/{kind}/*.safetensors")
    return {_place(path.relative_to(folder)): path.read_bytes() for path in found}


def _place(path: Path) -> str:
    owner, _, _, *rest = path.parts
    return "/".join((owner, *rest))
